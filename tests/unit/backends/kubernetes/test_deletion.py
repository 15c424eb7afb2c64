"""When a deletion is certain, and what is said of it by then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes import deletion, job_metadata
from ciao_kernel.backends.kubernetes.deletion import Deletions
from ciao_kernel.model import Job

JOB = Job("mine", "kubernetes", "tensorflow", (), 1.0, place="team", uid="u1")
PATH = "/apis/kubeflow.org/v1/namespaces/team/tfjobs/mine"
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
    assert first == "it is deleted; still ending: pod mine-worker-0"
    assert last == ""


def test_a_slow_look_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "_NAMING", 0.05)
    first, *_ = removed(slow=True)
    assert first == "it is deleted"
