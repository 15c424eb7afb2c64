"""Objects that lack parts, or whose parts are something else: no form of one breaks a command."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ciao_kernel.backends.kubernetes.apis.indexed_job import INDEX
from ciao_kernel.backends.kubernetes.backend import KubernetesBackend
from ciao_kernel.config import Settings
from ciao_kernel.errors import CiaoError
from ciao_kernel.model import Job, Replica

ROUNDS = 12
"""Of each seed; each follows a job and asks all other questions about it."""
SECONDS = 0.4
"""How long a job is followed that has no end."""

META = {
    "name": "job",
    "namespace": "team",
    "uid": "u1",
    "creationTimestamp": "2026-11-21T10:00:00Z",
    "resourceVersion": "7",
    "labels": {"app.kubernetes.io/managed-by": "ciao", "ciao-kernel/job": "job"},
    "annotations": {
        "ciao-kernel/replicas": "ps=1 worker=1",
        "ciao-kernel/decider": "worker-0",
        "ciao-kernel/framework": "tensorflow",
        "ciao-kernel/owner": "ada",
    },
}


def job(*conditions: str) -> dict[str, Any]:
    at = "2026-11-21T10:00:09Z"
    held = [{"type": c, "status": "True", "lastTransitionTime": at} for c in conditions]
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "i", "resources": {}}]}}
    one = {"replicas": 1, "restartPolicy": "Never", "template": template}
    return {
        "kind": "TFJob",
        "metadata": META,
        "spec": {"runPolicy": {"suspend": False}, "tfReplicaSpecs": {"PS": one, "Worker": one}},
        "status": {"conditions": held, "replicaStatuses": {"Worker": {"active": 1}}},
    }


def indexed(*conditions: str) -> dict[str, Any]:
    """The same as an Indexed Job."""
    found = job(*conditions)
    template = {**found["spec"]["tfReplicaSpecs"]["PS"]["template"], "metadata": META}
    rules = [{"succeededIndexes": "1"}]
    spec = {"backoffLimit": 0, "template": template, "successPolicy": {"rules": rules}}
    return {**found, "kind": "Job", "spec": spec}


def pod(role: str, phase: str, state: dict[str, Any]) -> dict[str, Any]:
    labels = {
        "training.kubeflow.org/job-name": "job",
        "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": "0",
        "app.kubernetes.io/managed-by": "ciao",
    }
    meta = {**META, "name": f"job-{role}-0", "uid": f"p-{role}", "labels": labels}
    one = {"name": "tensorflow", "restartCount": 0, "state": state, "containerID": "c://1"}
    return {
        "kind": "Pod",
        "metadata": {**meta, "ownerReferences": [{"uid": "u1", "kind": "TFJob"}]},
        "spec": {"nodeName": "node", "containers": [{"name": "tensorflow"}]},
        "status": {
            "phase": phase,
            "containerStatuses": [one],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


EVENT = {
    "metadata": {"name": "e", "uid": "e1", "namespace": "team"},
    "involvedObject": {"kind": "Pod", "name": "job-worker-0", "uid": "p-worker"},
    "type": "Warning",
    "reason": "FailedScheduling",
    "message": "0/1 nodes are available",
    "lastTimestamp": "2026-11-21T10:00:02Z",
    "count": 2,
}
RUNNING = {"running": {"startedAt": "2026-11-21T10:00:01Z"}}
WAITING = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
ENDED = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": "2026-11-21T10:00:05Z"}}


class Broken:
    """An API server that knows one job, and tells something else each time.

    Args:
        chance: Decides what is broken.
        rate: How much is.
        resource: The kind of the job, as written in paths.
    """

    def __init__(self, chance: random.Random, rate: float, resource: str) -> None:
        self.chance, self.rate, self.resource = chance, rate, resource
        made = indexed if resource == "jobs" else job
        self.job = made(*chance.choice([("Created",), ("Running",), ("Succeeded",), ("Failed",)]))
        states = [("Running", RUNNING), ("Pending", WAITING), ("Failed", ENDED)]
        self.pods = [pod(role, *chance.choice(states)) for role in ("ps", "worker")]
        if resource == "jobs":
            for index, one in enumerate(self.pods):
                notes = {**META["annotations"], INDEX: str(index)}  # type: ignore[dict-item]
                one["metadata"] |= {"labels": META["labels"], "annotations": notes}

    def twist(self, item: Any) -> Any:
        if self.chance.random() < self.rate:
            return self.chance.choice([None, 7, "text", [], {}, [None], {"a": 1}, True, -1.5, "☃"])
        if isinstance(item, dict):
            kept = {k: self.twist(v) for k, v in item.items() if self.chance.random() > self.rate}
            return {**kept, "newField": {"x": 1}}
        if isinstance(item, list):
            return [self.twist(one) for one in item]
        return item

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path, name = request.path, request.path.rpartition("/")[2]
        if name == "v1" and path.startswith("/apis"):
            return web.json_response({"resources": [{"name": "tfjobs"}, {"name": "pytorchjobs"}]})
        if name == "log":
            lines = [b"2026-11-21T10:00:03.000000001Z hello\n", b"no stamp\n", b"\xff\0", b""]
            return web.Response(body=b"".join(self.chance.choices(lines, k=3)))
        found = {self.resource: [self.job], "pods": self.pods, "events": [EVENT]}.get(name)
        if request.query.get("watch"):
            return await self.watch(request, found or [])
        if found is not None:
            body: Any = {"kind": "List", "metadata": {"resourceVersion": "7"}, "items": found}
        elif f"/{self.resource}/" in path:
            body = self.job
        elif "/pods/" in path:
            body = self.chance.choice(self.pods)
        elif name in ("tfjobs", "pytorchjobs", "jobs"):
            body = {"metadata": {}, "items": []}
        else:
            return web.json_response({"kind": "Status", "message": "none"}, status=404)
        return web.json_response(self.twist(body))

    async def watch(self, request: web.Request, found: list[Any]) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        kinds = ["ADDED", "MODIFIED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "NEW", None]
        with contextlib.suppress(ConnectionError):
            for item in found * 2:
                event = {"type": self.chance.choice(kinds), "object": self.twist(item)}
                line = json.dumps(self.twist(event) if self.chance.random() < 0.2 else event)
                await answer.write(line.encode() + self.chance.choice([b"\n"] * 9 + [b""]))
                await asyncio.sleep(0.02)
        return answer


async def ask_all(backend: KubernetesBackend, resource: str) -> list[str]:
    """Ask all that can be asked of a job; return how each question ended."""
    known = Job(
        "job", "kubernetes", "tensorflow", (Replica("ps", 0), Replica("worker", 0)), 1.0, "team",
        kind_of_place="namespace", resource=resource, uid="u1",
    )  # fmt: skip

    async def follow() -> None:
        with contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(SECONDS),
                contextlib.aclosing(backend.follow(known)) as found,
            ):  # type: ignore[type-var]
                async for _ in found:
                    pass

    ended = []
    for ask in (
        backend.jobs,
        lambda: backend.find("job"),
        lambda: backend.details(known),
        lambda: backend.log(known, Replica("worker", 0)),
        follow,
    ):
        try:
            await ask()
            ended.append("")
        except CiaoError as error:
            ended.append(error.message)
    return ended


@pytest.mark.parametrize("rate", [0.01, 0.1], ids=["a little", "much"])
@pytest.mark.parametrize(("seed", "resource"), [(1, "tfjobs"), (2, "tfjobs"), (3, "jobs")])
def test_no_form_of_an_answer_breaks_a_question(
    seed: int, resource: str, rate: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    server = Broken(chance, rate, resource)

    async def handler(request: web.Request) -> web.StreamResponse:
        return await server.answer(request)

    async def main() -> list[list[str]]:
        nonlocal server
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        config = {
            "clusters": [{"name": "c", "cluster": {"server": site.name}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "namespace": "team"}}],
            "current-context": "c",
        }
        port = runner.addresses[0][1]
        config["clusters"][0]["cluster"]["server"] = f"http://127.0.0.1:{port}"  # type: ignore[index]
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        settings = Settings(storage=tmp_path, request_patience=0.1, follow_patience=1.0)
        found = []
        for _ in range(ROUNDS):
            server = Broken(chance, rate, resource)
            backend = KubernetesBackend(settings)
            async with asyncio.timeout(60):
                found.append(await ask_all(backend, resource))
            await backend.close()
        await runner.cleanup()
        return found

    outcomes = asyncio.run(main())
    assert len(outcomes) == ROUNDS
    if rate < 0.05:  # most of it is as it should be, and so are the answers
        assert sum(not one for ended in outcomes for one in ended) > ROUNDS * 3
