"""What is told beside a log that may be older than asked for, or that cannot be read."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel import commands
from ciao_kernel.api.job_handle import JobHandle
from ciao_kernel.commands import logs
from ciao_kernel.errors import ClusterFault
from ciao_kernel.model import Event, Job, Notice, Replica, State, Status
from ciao_kernel.model.queries import WHOLE_LOG, LogOptions

JOB = Job("mine", "kubernetes", "tensorflow", (Replica("worker", 0),), 1.0, "team")
WARM = Job("mine", "kubernetes", "tensorflow", JOB.replicas, 1.0, "team", header="%warm=10m\n")
THREE = Job(
    "mine", "kubernetes", "tensorflow", tuple(Replica("worker", n) for n in range(3)), 1.0, "team"
)
OLD = "the lines of worker-0 are those saved on this machine until 10:00."


class Session:
    """One job, whose node cannot be reached; of some replicas there is no log at all."""

    def __init__(self, job: Job, *silent: int, data: bytes = b"step 1 loss 0.5\n") -> None:
        self.job, self.silent, self.data = job, silent, data
        self.shown: list[Event] = []

    async def find(self, *_: object) -> tuple[Session, Job, Status]:
        return self, self.job, Status(State.RUNNING, ())

    def backend(self, name: str) -> Session:
        return self

    async def log(self, job: Job, replica: Replica, options: LogOptions = WHOLE_LOG) -> bytes:
        if replica.index in self.silent:
            raise ClusterFault(f"{replica} does not answer.")
        if not self.silent:
            options.tell(OLD)
        return self.data

    def show(self, event: Event) -> None:
        self.shown.append(event)

    def run(self, work: Callable[[Any], Any]) -> Any:
        return asyncio.run(work(self))


def show(here: Any, written: list[str], *words: str) -> None:
    verb = argparse.ArgumentParser()
    logs.arguments(verb)
    caller = commands.Caller(here, here, written.append, Path(), terminal=True)
    asyncio.run(logs.run(verb.parse_args(words), caller))


@pytest.mark.parametrize("job", [JOB, WARM])
def test_a_log_that_may_be_old_is_told_beside_its_lines(job: Job) -> None:
    here: Any = Session(job)
    written: list[str] = []
    show(here, written, "mine")
    assert "".join(written) == "[worker-0] step 1 loss 0.5\n"
    assert here.shown == [Notice(OLD)]


def test_a_long_log_is_written_in_pieces_of_whole_lines() -> None:
    """A terminal gets gigabytes without a text of that size, and their first line at once."""
    lines = [f"line {number} {'x' * 80}\n" for number in range(20_000)]
    here, written = Session(THREE, data="".join(lines).encode()), list[str]()
    show(here, written, "mine", "--replica", "worker-1")
    assert "".join(written) == "".join(f"[worker-1] {line}" for line in lines)
    assert max(map(len, written)) < 500_000
    assert all(text.endswith("\n") for text in written)


def test_a_log_that_may_be_old_is_a_warning_in_python() -> None:
    client: Any = Session(JOB)
    handle = JobHandle(JOB, Status(State.SUCCEEDED, (), settled=True), client)
    with pytest.warns(UserWarning, match="saved on this machine until") as caught:
        assert handle.logs("worker-0") == "step 1 loss 0.5\n"
    assert [Path(one.filename) for one in caught] == [Path(__file__)]


def test_logs_that_are_incomplete_are_shown_and_are_a_failure() -> None:
    here, written = Session(THREE, 0, 2), list[str]()
    with pytest.raises(ClusterFault, match="worker-0 does not answer"):
        show(here, written, "mine")
    assert "".join(written) == "[worker-1] step 1 loss 0.5\n"
    assert here.shown == [Notice("worker-2 does not answer.")]
    show(here, written, "mine", "--previous")  # most replicas have none


def test_a_log_that_cannot_be_read_is_a_warning_in_python() -> None:
    client: Any = Session(THREE, 0, 2)
    handle = JobHandle(THREE, Status(State.SUCCEEDED, (), settled=True), client)
    told = ["worker-0 does not answer.", "worker-2 does not answer."]
    with pytest.warns(UserWarning, match="does not answer") as caught:
        assert handle.logs() == "[worker-1] step 1 loss 0.5\n"
    assert [str(one.message) for one in caught] == told
    with pytest.warns(UserWarning, match="does not answer") as caught:
        assert list(handle.metrics["loss"]) == ["worker-1"]
    assert [str(one.message) for one in caught] == told
    assert {Path(one.filename) for one in caught} == {Path(__file__)}
    client.silent = (2,)  # what was incomplete is read again
    with pytest.warns(UserWarning, match="worker-2 does not answer"):
        assert list(handle.metrics["loss"]) == ["worker-0", "worker-1"]
    client.silent = (0, 1, 2)
    for ask in (handle.logs, lambda: handle.metrics):
        with pytest.raises(ClusterFault, match="worker-0 does not answer"):
            ask()
