"""What the server is asked to try before a job exists, and what it need not try again."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.manifests import pod_security
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.backends.kubernetes.submission import validation
from ciao_kernel.errors import NoRoom
from ciao_kernel.model import Event, Notice
from tests.integration.kube.test_responses import client

PODS = "/api/v1/namespaces/team/pods"
QUOTAS = "/api/v1/namespaces/team/resourcequotas"
MAPS = "/api/v1/namespaces/team/configmaps"
JOBS = "/apis/kubeflow.org/v1/namespaces/team/tfjobs"
EVERYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
FULL = {
    "metadata": {"name": "small"},
    "spec": {"hard": {"pods": "2"}},
    "status": {"used": {"pods": "2"}},
}


def made(name: str, text: str = "print()", cpu: str = "1", volume: str = "") -> Objects:
    """What a cell becomes: a job of one worker, and its source."""
    source = f"{name}-{abs(hash(text))}"
    container = {"image": "python", "resources": {"limits": {"cpu": cpu}}}
    spec = {
        "containers": [container],
        "volumes": [{"configMap": {"name": volume or source}}],
        "hostname": name,
    }
    worker = {"replicas": 1, "template": {"metadata": {"labels": {"job": name}}, "spec": spec}}
    meta = {"name": name, "namespace": "team"}
    kind = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob"}
    job = {**kind, "metadata": meta, "spec": {"tfReplicaSpecs": {"Worker": worker}}}
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    beside = {**kind, "metadata": {"name": source, "namespace": "team"}, "data": {"cell": text}}
    return Objects((beside,), job, "/apis/kubeflow.org/v1/namespaces/team/tfjobs")


class Server:
    """Answers as an API server does; what it refuses can be changed."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.quotas: list[Any] = []
        self.restricted = False
        self.policy = ""
        self.manages = False
        """Whether Kueue suspends a new job."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.method == "POST" else {}
        if request.path.endswith("selfsubjectrulesreviews"):
            return web.json_response({**body, "status": {"resourceRules": [EVERYTHING]}})
        if request.path.endswith("/limitranges"):
            return web.json_response({"items": []})
        self.asked.append(request.path)
        if request.path == QUOTAS:
            return web.json_response({"items": self.quotas})
        assert request.query["dryRun"] == "All"
        if self.manages and request.path == JOBS:
            return web.json_response({**body, "spec": {"runPolicy": {"suspend": True}}})
        if self.policy and request.path == PODS:
            status = {"kind": "Status", "code": 400, "message": self.policy}
            return web.json_response(status, status=400)
        if self.restricted and "securityContext" not in body.get("spec", {"securityContext": 1}):
            words = 'pods "a" is forbidden: violates PodSecurity "restricted:latest": root'
            status = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": words}
            return web.json_response(status, status=403)
        return web.json_response(body)


async def tried(target: Target, server: Server, what: Objects, *, whole: bool = False) -> list[str]:
    """What is asked of the server for a job."""
    server.asked.clear()
    await validation.try_out(target, what, whole=whole)
    return sorted(server.asked)


ALL = sorted([MAPS, PODS, QUOTAS])


def test_a_cell_that_was_edited_is_not_tried_again() -> None:
    async def main() -> None:
        server = Server()
        async with client(server.answer) as api:
            target = Target(api, "team")
            assert await tried(target, server, made("a")) == ALL
            assert await tried(target, server, made("a", "print(2)")) == []
            assert await tried(target, server, made("b", "print(3)")) == []
            assert await tried(target, server, made("a"), whole=True) != []
            # Another ask, volume or namespace is another job.
            assert await tried(target, server, made("a", cpu="2")) == ALL
            assert await tried(target, server, made("a", volume="data")) == ALL
            far = replace(made("a"), path="/apis/kubeflow.org/v1/namespaces/far/tfjobs")
            assert await tried(target, server, far) == ALL
            api.cache.clear()  # as whoever reads a refusal does
            assert await tried(target, server, made("a")) == ALL

    asyncio.run(main())


@pytest.mark.parametrize("readable", [True, False])
def test_a_job_that_waits_in_a_queue_needs_no_room_for_its_pods_now(readable: bool) -> None:
    async def main() -> None:
        server = Server()
        server.quotas = [FULL] if readable else []
        server.policy = 'pods "a" is forbidden: exceeded quota: small, used: pods=2'
        async with client(server.answer) as api:
            target = Target(api, "team")
            with pytest.raises(NoRoom):  # Kueue does not manage its kind, whatever the cell names
                await tried(target, server, made("a"))
            server.manages = True
            assert JOBS in await tried(target, server, made("a"))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("hard", "used", "said"),
    [
        ({"pods": "0"}, {"pods": "0"}, "pods: the job asks for 1, and all of it is 0"),
        ({"limits.cpu": "500m"}, {}, "limits.cpu: the job asks for 1, and all of it is 500m"),
        ({"configmaps": "3"}, {"configmaps": "3"}, "asks for 1, and 3 of 3 are used"),
        ({"count/tfjobs.kubeflow.org": "1"}, {"count/tfjobs.kubeflow.org": "1"}, "1 of 1 is used"),
    ],
)
def test_a_job_that_waits_needs_room_for_its_objects_and_a_quota_that_can_hold_it(
    hard: dict[str, str], used: dict[str, str], said: str
) -> None:
    async def main() -> None:
        server = Server()
        server.manages = True
        server.quotas = [{"metadata": {"name": "q"}, "spec": {"hard": hard}}]
        server.quotas[0]["status"] = {"used": used}
        async with client(server.answer) as api:
            with pytest.raises(NoRoom) as raised:
                await validation.try_out(Target(api, "team"), made("a"))
        assert said in raised.value.message

    asyncio.run(main())


def test_a_refused_job_is_tried_each_time() -> None:
    async def main() -> None:
        server = Server()
        server.quotas = [FULL]
        async with client(server.answer) as api:
            for _ in range(2):
                with pytest.raises(NoRoom, match="the quota small"):
                    await validation.try_out(Target(api, "team"), made("a"))

    asyncio.run(main())


def test_a_quota_is_looked_at_for_each_job() -> None:
    async def main() -> None:
        server = Server()
        server.quotas = [copy.deepcopy(FULL)]
        server.quotas[0]["status"]["used"] = {"pods": "1"}
        async with client(server.answer) as api:
            target = Target(api, "team")
            for _ in range(2):
                assert QUOTAS in await tried(target, server, made("a"))
            server.quotas[0]["status"]["used"] = {"pods": "2"}
            with pytest.raises(NoRoom, match="the quota small"):
                await tried(target, server, made("a"))

    asyncio.run(main())


def test_what_had_to_be_secured_is_secured_again_without_a_question() -> None:
    async def main() -> None:
        server = Server()
        server.restricted = True
        async with client(server.answer) as api:
            target = Target(api, "team")
            first = await validation.try_out(target, made("a"))
            server.asked.clear()
            second = await validation.try_out(target, made("a", "print(2)"))
            assert server.asked == []
            assert first.secured
            assert second == pod_security.secured(made("a", "print(2)"))

    asyncio.run(main())


@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.parametrize("what", ["pod", "job"])
def test_a_name_is_free_as_soon_as_its_last_pod_is_gone(what: str, gone: bool) -> None:
    """What a server knows by heart may be a moment old; a free name is not asked for twice."""
    jobs = "/apis/kubeflow.org/v1/namespaces/team/tfjobs"
    asked: list[bool] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        by_heart = request.query.get("resourceVersion") == "0"
        # The rights are asked for by POST, and what the cluster serves for all namespaces: once.
        if request.method == "GET" and "/namespaces/" in request.path:
            asked.append(by_heart)
        there = "/b" not in request.path and "=b" not in request.query.get("labelSelector", "")
        there = there and (by_heart or not gone)
        if request.path == PODS:
            return web.json_response({"items": [{}] if there and what == "pod" else []})
        if there and what == "job" and request.path == f"{jobs}/a":
            return web.json_response({"metadata": {"name": "a"}})
        status = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "none"}
        return web.json_response(status, status=404)

    async def main() -> None:
        async with client(answer) as api:
            target = Target(api, "team")
            assert await validation.taken(target, jobs, "a") is not gone
            assert set(asked) == {True, False}
            asked.clear()
            assert not await validation.taken(target, jobs, "b")
            assert set(asked) == {True}

    asyncio.run(main())


def test_kinds_that_the_cluster_does_not_serve_are_not_asked_for_a_name() -> None:
    jobs = "/apis/kubeflow.org/v1/namespaces/team/tfjobs"
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            asked.append(request.path.rpartition("/namespaces/team/")[2])
        if request.path == "/apis/kubeflow.org/v1":
            names = [{"name": name} for name in ("tfjobs", "pytorchjobs", "tfjobs/status")]
            return web.json_response({"resources": names})
        if request.path == PODS:
            return web.json_response({"items": []})
        status = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "none"}
        return web.json_response(status, status=404)

    async def main() -> None:
        async with client(answer) as api:
            target = Target(api, "team")
            assert not await validation.taken(target, jobs, "a")
            kinds = ["configmaps/a-next-try", "pods", "pytorchjobs/a", "tfjobs/a"]
            assert sorted(set(asked) & {*kinds, "mpijobs/a", "trainjobs/a"}) == kinds
            asked.clear()
            assert not await validation.taken(target, jobs, "b", asks_own=False)
            assert sorted(asked) == ["configmaps/b-next-try", "pods", "pytorchjobs/b"]

    asyncio.run(main())


def test_a_policy_against_the_pods_of_a_trial_is_a_notice() -> None:
    async def main() -> None:
        server, said = Server(), list[Event]()
        server.policy = 'admission webhook "a" denied the request: no'
        async with client(server.answer) as api:
            await validation.try_out(Target(api, "team"), made("a"), emit=said.append)
        (notice,) = said
        assert isinstance(notice, Notice)
        assert server.policy in notice.text

    asyncio.run(main())
