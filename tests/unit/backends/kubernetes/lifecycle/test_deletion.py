"""When a deletion is certain, and what is said of it by then."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.lifecycle import deletion
from ciao_kernel.backends.kubernetes.lifecycle.deletion import Deletions
from ciao_kernel.errors import ClusterFault
from ciao_kernel.model import Job

JOB = Job("mine", "kubernetes", "tensorflow", (), 1.0, place="team", uid="u1")
PATH = "/apis/kubeflow.org/v1/namespaces/team/tfjobs/mine"
INDEXED = replace(JOB, resource="jobs")
TRAINED = replace(INDEXED, resource="trainjobs")
RUN = job_metadata.RUN
OWNER = {"uid": "u1", "controller": True}


class Server:
    """A client: the job goes at once, its pod after the second look."""

    def __init__(self, lists: asyncio.Event) -> None:
        self.lists, self.deleted, self.looks = lists, False, 0

    async def find(self, path: str) -> Any:
        return None if self.deleted else {"metadata": {"name": "mine", "uid": "u1"}}

    async def delete(self, path: str, *, uid: str) -> None:
        self.deleted = True

    async def get(self, path: str, **query: str) -> Any:
        await self.lists.wait()
        self.looks += 1
        pod = {"metadata": {"name": "mine-worker-0", "ownerReferences": [OWNER]}}
        return {"items": [pod] if self.looks < 3 else []}


def removed(*, slow: bool) -> list[str]:
    """What is said to be left, each time that the end is called certain, and afterwards."""

    async def main() -> list[str]:
        lists, removals, said = asyncio.Event(), Deletions(), []
        if not slow:
            lists.set()

        def stop_certain() -> None:
            said.append(removals.left(JOB))
            lists.set()

        async with asyncio.timeout(20):
            await removals.remove(Server(lists), JOB, PATH, stop_certain)  # type: ignore[arg-type]
        return [*said, removals.left(JOB)]

    return asyncio.run(main())


def test_the_end_is_certain_when_it_is_known_what_still_ends() -> None:
    assert job_metadata.is_part_of({"metadata": {"ownerReferences": [OWNER]}}, "u1")
    first, *_, last = removed(slow=False)
    assert first == "it is deleted, and Kubernetes is removing pod mine-worker-0"
    assert last == ""


def test_a_slow_look_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "_NAMING", 0.05)
    first, *_ = removed(slow=True)
    assert first == "it is deleted"


class Held(Server):
    """A client whose job a finalizer keeps, and whose pod is not told to end."""

    async def find(self, path: str) -> Any:
        meta = {"name": "mine", "uid": "u1", "finalizers": ["example.com/hold"]}
        return {"metadata": meta | ({"deletionTimestamp": "now"} if self.deleted else {})}

    async def get(self, path: str, **query: str) -> Any:
        return {"items": [{"metadata": {"name": "mine-worker-0", "ownerReferences": [OWNER]}}]}


def test_a_finalizer_that_keeps_a_deleted_job_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "_HELD", 0.2)
    monkeypatch.setattr(deletion, "_GONE", 1000.0)
    said: list[str] = []

    async def main() -> None:
        removals = Deletions()
        server: Any = Held(asyncio.Event())
        async with asyncio.timeout(20):
            await removals.remove(server, JOB, PATH, lambda: said.append(removals.left(JOB)))

    left = "mine itself (kept by the finalizer example.com/hold), pod mine-worker-0"
    with pytest.raises(ClusterFault) as caught:
        asyncio.run(main())
    assert said[0] == f"it is deleted, and Kubernetes is removing {left}"
    assert caught.value.message == f"it is deleted, but these objects still exist: {left}."
    assert "whoever set the finalizer" in caught.value.hint


class Silent(Server):
    """A client whose node does not answer any more: the pod stays."""

    async def get(self, path: str, **query: str) -> Any:
        keep: list[Any] = [{"name": "ciao-output", "command": ["keep", "/ciao-output", "0.1"]}]
        run = ["python3", "-c", "…", "keeper.py", "run", "/ciao-output", "0.2", "", "9", "--", "x"]
        spec = {"terminationGracePeriodSeconds": 3600, "initContainers": keep}
        meta = {"name": "mine-worker-0", "ownerReferences": [OWNER]}
        return {"items": [{"metadata": meta, "spec": {**spec, "containers": [{"command": run}]}}]}


def test_a_pod_that_could_be_fetched_from_for_an_hour_is_not_awaited_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deletion, "_GONE", 0.1)

    async def main() -> None:
        server: Any = Silent(asyncio.Event())
        async with asyncio.timeout(20):
            await Deletions().remove(server, JOB, PATH, lambda: None)

    with pytest.raises(ClusterFault) as caught:
        asyncio.run(main())
    assert caught.value.message == (
        "it is deleted, but these objects still exist: pod mine-worker-0."
    )


class Indexed(Server):
    """A client whose job is gone before its Service; a Service of somebody else stays."""

    def __init__(self, run: str) -> None:
        super().__init__(asyncio.Event())
        self.lists.set()
        self.run, self.asked = run, 0

    async def find(self, path: str) -> Any:
        if path.endswith("/services/mine"):
            self.asked += 1
            service = {"metadata": {"name": "mine", "annotations": {RUN: self.run}}}
            return {**service, "spec": {"clusterIP": "None"}} if self.asked < 4 else None
        if self.deleted or path.endswith("/configmaps/mine-1"):
            return None
        volumes = [{"configMap": {"name": "mine-1"}}]
        return {
            "metadata": {"name": "mine", "uid": "u1", "annotations": {RUN: "run-1"}},
            "spec": {"template": {"spec": {"volumes": volumes, "subdomain": "mine"}}},
        }

    async def get(self, path: str, **query: str) -> Any:
        return {"items": []}


@pytest.mark.parametrize(("run", "looks"), [("run-1", 4), ("run-2", 1)])
def test_the_service_of_an_indexed_job_is_waited_for(run: str, looks: int) -> None:
    server, said = Indexed(run), list[str]()

    async def main() -> None:
        removals = Deletions()
        tell = lambda: said.append(removals.left(INDEXED))  # noqa: E731
        async with asyncio.timeout(20):
            await removals.remove(server, INDEXED, PATH, tell)  # type: ignore[arg-type]

    asyncio.run(main())
    assert server.asked == looks
    named = "it is deleted, and Kubernetes is removing Service mine"
    assert (named in said) is (run == "run-1")


class Trained(Server):
    """A client whose TrainJob is gone before its runtime, and that before Trainer's copy."""

    def __init__(self) -> None:
        super().__init__(asyncio.Event())
        self.lists.set()
        self.looks = 0

    async def find(self, path: str) -> Any:
        volumes = [{"configMap": {"name": "mine-1"}}]
        template = {"spec": {"volumes": volumes}}
        part = {"name": "worker", "template": {"spec": {"completions": 1, "template": template}}}
        runtime = {"template": {"spec": {"replicatedJobs": [part]}}}
        if path.endswith("/trainingruntimes/mine-x"):
            meta = {"name": "mine-x", "annotations": {RUN: "run-1"}}
            self.looks += self.deleted
            return {"metadata": meta, "spec": runtime} if self.looks < 3 else None
        if path.endswith("/configmaps/mine-runtime-snapshot"):
            meta = {"name": "mine-runtime-snapshot", "ownerReferences": [{"uid": "u1"}]}
            return {"metadata": meta} if self.looks < 5 else None
        if self.deleted or path.endswith("/configmaps/mine-1"):
            return None
        return {
            "metadata": {"name": "mine", "uid": "u1", "annotations": {RUN: "run-1"}},
            "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": "mine-x"}},
        }

    async def get(self, path: str, **query: str) -> Any:
        return {"items": []}


def test_the_runtime_of_a_train_job_and_trainers_copy_are_waited_for() -> None:
    server, said = Trained(), list[str]()

    async def main() -> None:
        removals = Deletions()
        tell = lambda: said.append(removals.left(TRAINED))  # noqa: E731
        async with asyncio.timeout(20):
            await removals.remove(server, TRAINED, PATH, tell)  # type: ignore[arg-type]

    asyncio.run(main())
    assert server.looks == 6
    both = "ConfigMap mine-runtime-snapshot, TrainingRuntime mine-x"
    assert f"it is deleted, and Kubernetes is removing {both}" in said
    assert "it is deleted, and Kubernetes is removing ConfigMap mine-runtime-snapshot" in said
