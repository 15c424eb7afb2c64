"""The status of a job as Python code knows it: of one with several tries, it may change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from ciao_kernel.api.known_status import KnownStatus
from ciao_kernel.config import Settings
from ciao_kernel.errors import JobFailed, NoSuchJob
from ciao_kernel.model import Job, State, Status
from ciao_kernel.model.queries import Where

T = TypeVar("T")


class Cluster:
    """A job on a cluster: the session that finds it, its backend, and a client of both."""

    def __init__(self, state: State, *, retries: int, ago: float = 0.0) -> None:
        self.settings = Settings(stop_grace=5.0)
        self.stopped: list[str] = []
        self.job: Job | None = Job(
            "a", "kubernetes", "pytorch", (), 1.0, kind_of_place="namespace", uid="1",
            retries=retries,
        )  # fmt: skip
        self.status = Status(state, (), since=time.time() - ago, settled=True)

    def known(self, error: JobFailed | None = None) -> KnownStatus:
        assert self.job is not None
        return KnownStatus(self.job, self.status, self, error)  # type: ignore[arg-type]

    def start_again(self) -> None:
        assert self.job is not None
        self.job = replace(self.job, uid="2", first_uid="1", tries=self.job.tries + 1)
        self.status = Status(State.RUNNING, ())

    def run(self, work: Callable[[Any], Awaitable[T]]) -> T:
        async def main() -> T:
            return await work(self)

        return asyncio.run(main())

    async def find(self, name: str, where: Where) -> tuple[Cluster, Job, Status]:
        if self.job is None:
            raise NoSuchJob(f"there is no job {name}.")
        return self, self.job, self.status

    async def stop(self, job: Job, reason: str) -> None:
        self.stopped.append(job.uid)


def test_a_failed_try_is_asked_for_again() -> None:
    cluster = Cluster(State.FAILED, retries=1)
    known = cluster.known()
    assert known.newest().state is State.FAILED
    cluster.start_again()
    assert known.newest().state is State.RUNNING
    assert not known.is_last
    cluster.status = Status(State.FAILED, (), since=time.time(), settled=True)
    known.newest()
    assert known.is_last  # of its last try
    cluster.status = Status(State.RUNNING, ())
    assert known.newest().state is State.FAILED


@pytest.mark.parametrize(
    ("state", "retries", "error"),
    [
        (State.FAILED, 0, None),
        (State.SUCCEEDED, 3, None),
        (State.FAILED, 3, JobFailed("a failed.")),
    ],
    ids=["no tries", "succeeded", "its cell has the error"],
)
def test_other_ends_are_not(state: State, retries: int, error: JobFailed | None) -> None:
    cluster = Cluster(state, retries=retries)
    known = cluster.known(error)
    cluster.start_again()
    assert known.is_last
    assert known.newest().state is state


def test_the_failure_of_a_job_of_this_machine_is_its_last() -> None:
    place = Cluster(State.FAILED, retries=3)
    assert place.job is not None
    place.job = replace(place.job, backend="local", kind_of_place="folder")
    assert place.known().is_last


def test_a_failed_try_that_was_deleted_stays_failed() -> None:
    cluster = Cluster(State.FAILED, retries=3)
    known = cluster.known()
    cluster.job = None
    assert known.newest().state is State.FAILED


def test_a_stop_ends_a_failed_job_only_while_its_next_try_may_come() -> None:
    soon, old = Cluster(State.FAILED, retries=1), Cluster(State.FAILED, retries=1, ago=3600)
    for cluster in (soon, old):
        cluster.run(cluster.known().stop)
    assert soon.stopped == ["1"]
    assert old.stopped == []
