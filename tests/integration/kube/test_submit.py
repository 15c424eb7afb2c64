"""What a submission prepares, and what it does with a name while a builder fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import template_holder
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.manifests import job_objects
from ciao_kernel.backends.kubernetes.submission import prepare, submit
from ciao_kernel.builders.configmap import ConfigMapBuilder
from ciao_kernel.config import Settings
from ciao_kernel.errors import ClusterFault
from ciao_kernel.magics import parse
from ciao_kernel.model import Artifact, Event, Owner, Source, SourceFile
from ciao_kernel.plugins import Build, Emit, Plan
from ciao_kernel.session.plugin_registry import Registry
from tests.integration.kube.test_responses import client

REGISTRY = Registry({})


class Failing:
    """A builder whose pods run out of time."""

    name, backend, supported_fields = "failing", "kubernetes", frozenset[str]()

    def __init__(self) -> None:
        self.built: list[str] = []

    async def build(self, ask: Build, emit: Emit) -> Artifact:
        self.built.append(ask.job)
        raise ClusterFault("the build took longer than it may.", "Give it more time.")


async def taken(request: web.Request) -> web.StreamResponse:
    """Every job that is asked for exists."""
    if request.path.endswith("selfsubjectrulesreviews"):
        return web.json_response({**await request.json(), "status": {"resourceRules": []}})
    if request.path.endswith("/pods"):
        return web.json_response({"items": []})
    return web.json_response({"metadata": {"name": "mnist", "uid": "1"}})


def plan_of(text: str) -> Plan:
    spec = parse.parse(f"%framework=tensorflow\n{text}print()\n", REGISTRY.table).spec
    framework = REGISTRY.framework("tensorflow")
    entry = SourceFile("ciao_cell.py", b"print()\n", size=8)
    source = Source(entry, (), ())
    return Plan("mnist", framework.complete(spec), framework, source, Path(), "", Owner("me"))


@pytest.mark.parametrize(
    ("rules", "requests"),
    [([], {"cpu": "100m"}), ([{"type": "Container", "defaultRequest": {"cpu": "1"}}], None)],
)
def test_a_replica_requests_processors_unless_the_namespace_decides(
    rules: list[Any], requests: dict[str, str] | None
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        every = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        if request.path.endswith("selfsubjectrulesreviews"):
            review = {"resourceRules": [every], "incomplete": False}
            return web.json_response({**await request.json(), "status": review})
        if request.path == "/api/v1/namespaces/team/limitranges":
            return web.json_response({"items": [{"spec": {"limits": rules}}]})
        return web.json_response({"items": [], "metadata": {"name": "team"}})

    async def main() -> job_objects.Objects:
        settings = Settings()
        async with client(handler) as api:
            _, made = await prepare.prepare(
                plan_of(""), ConfigMapBuilder(settings), Target(api, "team"), settings, print, "a"
            )
            return made

    pod = template_holder.pod_templates(asyncio.run(main()).job)["Worker"]["spec"]
    resources = pod["containers"][0]["resources"]
    assert resources == ({"requests": requests} if requests else {})


def test_a_build_that_failed_is_not_done_again_under_the_next_name() -> None:
    """It took its hour again, and failed again, before the error was shown."""
    plan = plan_of("%name=mnist\n")
    builder, shown = Failing(), list[Event]()

    async def main() -> None:
        async with client(taken) as api:
            target = Target(api, "team")
            with pytest.raises(ClusterFault, match="longer than it may"):
                await submit.submit(
                    plan, builder, target, Settings(), shown.append, outlive=True, told=set()
                )

    asyncio.run(main())
    assert builder.built == ["mnist"]


class Kept:
    """A server that keeps what is created there, and notes which jobs were asked for."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.asked: list[str] = []
        self.created: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path, every = request.path, {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        if path.endswith("selfsubjectrulesreviews"):
            review = {"resourceRules": [every], "incomplete": False}
            return web.json_response({**await request.json(), "status": review})
        if request.method == "POST":
            body = await request.json()
            body["metadata"] |= {"uid": str(len(self.objects))}
            if "dryRun" not in request.query:
                self.objects[f"{path}/{body['metadata']['name']}"] = body
                self.created.append(f"{path}/{body['metadata']['name']}")
            return web.json_response(body)
        if path.rpartition("/")[2].startswith("mnist"):
            self.asked += [path] if request.method == "GET" else []
            if found := self.objects.get(path):
                return web.json_response(found)
            gone = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}
            return web.json_response(gone, status=404)
        served = [{"name": kind} for api in apis.ALL if api.path == path for kind in api.plurals]
        found = {"resources": served} if served else {"items": [], "metadata": {"name": "team"}}
        return web.json_response(found)


def test_an_edited_cell_gets_the_next_name_and_a_deleted_job_frees_its_own() -> None:
    server, settings = Kept(), Settings()
    plan, jobs = plan_of("%name=mnist\n"), "/apis/kubeflow.org/v1/namespaces/team/tfjobs"

    async def main() -> list[str]:
        async with client(server.answer) as api:
            target, names = Target(api, "team"), []
            for _ in range(3):
                builder = ConfigMapBuilder(settings)
                job = await submit.submit(
                    plan, builder, target, settings, print, outlive=True, told=set()
                )
                names.append(job.name)
            del server.objects[f"{jobs}/mnist"]  # somebody deletes it: its name is free again
            builder = ConfigMapBuilder(settings)
            job = await submit.submit(
                plan, builder, target, settings, print, outlive=True, told=set()
            )
            return [*names, job.name]

    assert asyncio.run(main()) == ["mnist", "mnist-2", "mnist-3", "mnist"]


async def submitted(target: Target) -> str:
    """Submit a cell with ``%name=mnist``; return the name of its job."""
    plan, settings = plan_of("%name=mnist\n"), Settings()
    job = await submit.submit(
        plan, ConfigMapBuilder(settings), target, settings, print, outlive=True, told=set()
    )
    return job.name


def test_a_name_of_a_job_before_is_asked_for_in_one_request() -> None:
    """All kinds are asked for the name that the new job gets: another kind may have it."""
    server, jobs = Kept(), "/apis/kubeflow.org/v1/namespaces/team/tfjobs"

    async def main() -> None:
        async with client(server.answer) as api:
            for _ in range(2):
                server.asked.clear()
                await submitted(Target(api, "team"))

    asyncio.run(main())
    first = [path for path in server.asked if path.endswith("/mnist")]
    assert first == [f"{jobs}/mnist"]
    kinds = {path.split("/")[-2] for path in server.asked if path.endswith("/mnist-2")}
    assert {"tfjobs", "pytorchjobs", "trainjobs", "jobs"} <= kinds


def test_a_name_that_is_free_again_is_asked_for_once_in_each_kind() -> None:
    server, jobs = Kept(), "/apis/kubeflow.org/v1/namespaces/team/tfjobs"

    async def main() -> str:
        async with client(server.answer) as api:
            await submitted(Target(api, "team"))
            del server.objects[f"{jobs}/mnist"]
            server.asked.clear()
            return await submitted(Target(api, "team"))

    assert asyncio.run(main()) == "mnist"
    assert sorted(server.asked) == sorted({*server.asked})
    kinds = {path.split("/")[-2] for path in server.asked if path.endswith("/mnist")}
    assert {"tfjobs", "pytorchjobs", "jaxjobs", "mpijobs", "trainjobs", "jobs"} <= kinds


@pytest.mark.parametrize("other", ["pytorchjobs", "paddlejobs"])
def test_a_name_that_another_kind_has_taken_meanwhile_is_not_given_again(other: str) -> None:
    """Nothing of the cell exists under it, not even for a moment: the pods would be in the way."""
    server, group = Kept(), "/apis/kubeflow.org/v1/namespaces/team"

    async def main() -> str:
        async with client(server.answer) as api:
            await submitted(Target(api, "team"))
            del server.objects[f"{group}/tfjobs/mnist"]
            server.objects[f"{group}/{other}/mnist"] = {"metadata": {"name": "mnist", "uid": "x"}}
            server.created.clear()
            return await submitted(Target(api, "team"))

    assert asyncio.run(main()) == "mnist-2"
    names = [path.rpartition("/")[2] for path in server.created]
    assert f"{group}/tfjobs/mnist-2" in server.created
    assert all(name == "mnist-2" or name.startswith("mnist-2-") for name in names), names


def test_the_names_of_many_jobs_before_are_asked_for_together() -> None:
    """One after the other, each edit of a cell would wait longer than the one before."""
    server, jobs = Kept(), "/apis/kubeflow.org/v1/namespaces/team/tfjobs"
    waiting, most = 0, 0

    async def slow(request: web.Request) -> web.StreamResponse:
        nonlocal waiting, most
        if not (request.method == "GET" and request.path.startswith(f"{jobs}/mnist")):
            return await server.answer(request)
        waiting += 1
        most = max(most, waiting)
        for _ in range(20):  # until those that were sent together have come
            if waiting == 6:
                break
            await asyncio.sleep(0.01)
        try:
            return await server.answer(request)
        finally:
            waiting -= 1

    async def main() -> list[str]:
        async with client(slow) as api:
            target = Target(api, "team")
            names = [await submitted(target) for _ in range(6)]
            server.asked.clear()
            return [*names, await submitted(target)]

    assert asyncio.run(main())[-1] == "mnist-7"
    assert most == 6
    before = [f"{jobs}/mnist{number}" for number in ("", "-2", "-3", "-4", "-5", "-6")]
    assert sorted(path for path in server.asked if path in before) == sorted(before)
