"""Attempts to make a next try: what they remember, and which objects they may remove."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.lifecycle import next_try
from ciao_kernel.backends.kubernetes.lifecycle.begun_tries import BegunTries, BegunTry
from ciao_kernel.backends.kubernetes.lifecycle.deletion import Deletions
from ciao_kernel.backends.kubernetes.lifecycle.known_tries import KnownTries
from ciao_kernel.backends.kubernetes.lifecycle.resubmission import Resubmission
from ciao_kernel.config import Settings
from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job

JOB = Job("j", "kubernetes", "tensorflow", (), 0.0, "team", resource="tfjobs", uid="1")


class Server:
    """Has the object of one submission."""

    async def find(self, _: str) -> Any:
        return {"metadata": {"uid": "2", "annotations": {job_metadata.RUN: "run-2"}}}


class Removals(Deletions):
    def __init__(self) -> None:
        super().__init__()
        self.removed: list[str] = []

    async def remove(self, *args: Any, **_: Any) -> bool:
        self.removed.append(args[1].run)
        return True


def found(begun: BegunTry) -> tuple[bool, list[str]]:
    """Return whether an attempt finds the object, and the submissions that it removes."""
    deletions = Removals()
    item = asyncio.run(begun.find(cast("Client", Server()), deletions, JOB, "/jobs/j"))
    return item is not None, deletions.removed


def test_a_submission_under_way_is_not_removed() -> None:
    begun = BegunTry()
    with begun.submitting("run-2"):
        assert found(begun) == (True, [])  # another follower of this process looks
    assert found(begun) == (True, [])


@pytest.mark.parametrize("error", [ClusterFault("no answer."), asyncio.CancelledError()])
def test_what_a_failed_submission_left_is_removed(error: BaseException) -> None:
    begun = BegunTry()
    with pytest.raises(type(error)), begun.submitting("run-2"):
        raise error
    assert found(begun) == (False, ["run-2"])


def test_a_next_try_is_kept_while_somebody_makes_it() -> None:
    tries = BegunTries()
    with tries.making(JOB):
        begun = tries.of(JOB)
        with pytest.raises(ClusterFault), tries.making(JOB):
            raise ClusterFault("no answer.")
        assert tries.of(JOB) is begun  # the other one still makes it
    assert tries.of(JOB) is not begun


@pytest.mark.parametrize("error", [None, ClusterFault("no answer.")])
def test_a_resumed_try_is_forgotten(
    error: ClusterFault | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, seen = Resubmission(Deletions(), KnownTries()), list[BegunTry]()
    last = {"metadata": {"uid": "1", "annotations": {job_metadata.RUN: "run-1"}}}

    async def find(*_: Any) -> Any:
        return SimpleNamespace(first_uid="1", number=2, last=last)

    async def nothing(_: str) -> None:
        return None

    async def recorded(_: Any, job: Job, *__: Any) -> Job:
        seen.append(work.begun.of(job))
        if error:
            raise error
        return job

    monkeypatch.setattr(next_try, "find", find)
    monkeypatch.setattr(work, "_recorded", recorded)
    target: Any = SimpleNamespace(client=SimpleNamespace(find=nothing))
    with contextlib.suppress(ClusterFault):
        asyncio.run(work.resumed(target, JOB, "/jobs/j", Settings(), lambda _: None))
    assert work.begun.of(JOB) is not seen[0]
