"""A failed replica ends its cell; what the others still write comes behind the error."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from ciao_kernel import background
from ciao_kernel.config import Settings
from ciao_kernel.delivery.inspection import debug_wire
from ciao_kernel.errors import ClusterFault, JobFailed
from ciao_kernel.jupyter.shutdown import Lifetime
from ciao_kernel.model import (
    Event,
    Job,
    Notice,
    Output,
    Owner,
    Replica,
    ReplicaStatus,
    State,
    Status,
)
from ciao_kernel.model.queries import HERE, Where
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from ciao_kernel.session.stopping import NoShutdown
from ciao_kernel.session.warm import logs
from tests.helpers.jobs import Recorder

ZERO, ONE = REPLICAS = (Replica("worker", 0), Replica("worker", 1))
JOB = Job("mine", "fake", "tensorflow", REPLICAS, 1.0)
TRACE = """\
Traceback (most recent call last):
  File "/ciao/cell.py", line 5, in <module>
{}
"""


def status(one: State, state: State = State.FAILED, **more: Any) -> Status:
    """Worker-0 has failed, and worker-1 is in this state."""
    ends = (ReplicaStatus(ZERO, State.FAILED, 1.0, 1), ReplicaStatus(ONE, one, 1.0))
    return Status(state, ends, time.time(), decided_by=ZERO, **more)


def output(replica: Replica, text: str) -> Output:
    return Output(replica, text.encode(), text.count("\n"))


class Backend:
    """One job: worker-0 fails, and worker-1 writes a line when the test lets it."""

    name = "fake"
    outlives_kernel = True

    def __init__(self, error: str, *, foreseen: bool = True) -> None:
        self.error, self.foreseen = error, foreseen
        self.decided, self.rest = asyncio.Event(), asyncio.Event()
        self.fault: ClusterFault | None = None
        self.end = State.FAILED
        self.stopped = ""

    async def follow(self, job: Job, *, since: float = 0.0) -> AsyncIterator[Event]:
        yield output(ZERO, TRACE.format(self.error))
        yield status(State.RUNNING, decided=True, foreseen=self.foreseen)
        self.decided.set()
        await self.rest.wait()
        if self.fault:
            raise self.fault
        yield output(ONE, TRACE.format("ValueError: the cause"))
        yield status(State.STOPPED, self.end, settled=True)

    async def stop(self, job: Job, reason: str, **_: Any) -> None:
        self.stopped = reason

    def describe_leftovers(self, job: Job) -> str:
        return "something is left"


class Cell:
    """A cell that follows the job of a backend."""

    def __init__(self, backend: Backend, lifetime: Any = None) -> None:
        class Found(Session):
            async def find(self, name: str, where: Where = HERE) -> Any:
                return backend, JOB, None

        self.backend, self.display = backend, Recorder()
        self.lifetime = lifetime or Lifetime()
        self.session = Found(Registry({}), Owner("a test"), Settings(), self.lifetime)
        self.work = asyncio.ensure_future(self.session.attach("mine", self.display))

    async def error(self) -> JobFailed:
        with pytest.raises(JobFailed) as caught:
            await self.work
        return caught.value

    async def finish(self) -> None:
        self.backend.rest.set()
        await background.wait_until_idle(20)


def run(main: Any) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await main()

    asyncio.run(limited())


@pytest.mark.parametrize("foreseen", [True, False])
def test_a_failed_replica_ends_its_cell_and_the_rest_comes_behind(foreseen: bool) -> None:
    async def main() -> None:
        cell = Cell(Backend("ValueError: no luck", foreseen=foreseen))
        error = await cell.error()
        assert error.message == "worker-0 ended with exit code 1: ValueError: no luck"
        assert cell.display.ended == 0
        assert cell.session.last
        assert cell.session.last.state is State.FAILED
        # A shutdown waits for the rest, which is saved nowhere else.
        assert cell.lifetime.is_delayed()
        await cell.finish()
        assert b"the cause" in cell.display.data("worker-1")
        assert cell.display.ended == 1
        assert cell.display.status.settled
        assert cell.display.notices == ""
        assert not cell.lifetime.is_delayed()

    run(main)


def test_the_cause_is_waited_for_where_the_failed_replica_is_only_a_victim() -> None:
    async def main() -> None:
        cell = Cell(Backend("ConnectionResetError: [Errno 104] Connection reset by peer"))
        await cell.backend.decided.wait()
        assert not cell.work.done()
        cell.backend.rest.set()
        error = await cell.error()
        assert error.message.endswith("ValueError: the cause")

    run(main)


@pytest.mark.parametrize("error", ["ValueError: no luck", "ConnectionResetError: by peer"])
def test_the_display_gets_the_error_once_and_before_the_cell_ends(error: str) -> None:
    async def main() -> None:
        cell = Cell(Backend(error))
        if "by peer" in error:
            await cell.backend.decided.wait()
            await asyncio.sleep(0.05)
            assert cell.display.errors == []  # another one may come
            cell.backend.rest.set()
        raised = await cell.error()
        await cell.finish()
        assert cell.display.errors == [raised]

    run(main)


def test_an_interrupt_at_the_end_shows_the_error_that_the_cell_does_not_end_with() -> None:
    class Slow(Recorder):
        async def end(self) -> None:
            self.ends.set()
            await asyncio.sleep(0.1)  # a picture is drawn
            await super().end()

    async def main() -> None:
        cell = Cell(Backend("ValueError: no luck"), NoShutdown())
        cell.work.cancel()
        slow = Slow()
        slow.ends = asyncio.Event()
        cell.work = asyncio.ensure_future(cell.session.attach("mine", slow))
        cell.backend.rest.set()
        await slow.ends.wait()
        (error,) = slow.errors
        cell.work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cell.work
        assert "\n".join(error.traceback) in slow.notices
        assert error.message in slow.notices

    run(main)


def test_an_interrupt_before_the_end_leaves_nothing_to_fold() -> None:
    async def main() -> None:
        cell = Cell(Backend("ConnectionResetError: by peer"))
        await cell.backend.decided.wait()
        cell.work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cell.work
        await cell.finish()
        assert cell.display.errors == []

    run(main)


def test_in_a_terminal_nothing_comes_behind_the_error() -> None:
    async def main() -> None:
        cell = Cell(Backend("ValueError: no luck"), NoShutdown())
        await cell.backend.decided.wait()
        assert not cell.work.done()
        cell.backend.rest.set()
        await cell.error()
        assert cell.display.ended == 1

    run(main)


def test_a_job_that_the_cluster_counts_as_succeeded_is_said_behind_its_red_cell() -> None:
    async def main() -> None:
        cell = Cell(Backend("ValueError: no luck"))
        cell.backend.end = State.SUCCEEDED
        await cell.error()
        await cell.finish()
        assert "so the cluster counts mine as succeeded." in cell.display.notices

    run(main)


def test_what_keeps_the_rest_away_is_said_behind_the_red_cell() -> None:
    async def main() -> None:
        cell = Cell(Backend("ValueError: no luck"))
        cell.backend.fault = ClusterFault("the API server is away.", "Wait.")
        await cell.error()
        await cell.finish()
        assert cell.display.notices == "the API server is away. Wait."

    run(main)


def test_a_foreseen_failure_is_no_end_that_forbids_a_stop() -> None:
    """In a terminal the job is still there until the cluster ends it."""

    async def main() -> None:
        from ciao_kernel.session.following import Following

        for foreseen in (True, False):
            backend: Any = Backend("ValueError: no luck", foreseen=foreseen)
            following = Following(JOB, backend, Recorder())
            await backend.decided.wait()
            assert (following.ended is None) is foreseen
            await following.end(0)

    run(main)


def test_restarts_of_many_replicas_at_once_are_one_notice() -> None:
    class Restarted(Backend):
        async def follow(self, job: Job, *, since: float = 0.0) -> AsyncIterator[Event]:
            again = (ReplicaStatus(one, State.RUNNING, restarts=1) for one in (ZERO, ONE))
            yield Status(State.RUNNING, tuple(again))
            ends = (ReplicaStatus(one, State.SUCCEEDED, restarts=1) for one in (ZERO, ONE))
            yield Status(State.SUCCEEDED, tuple(ends), settled=True)

    async def main() -> None:
        cell = Cell(Restarted(""))
        await cell.work
        notices = [event.text for event in cell.display.events if isinstance(event, Notice)]
        assert notices == ["worker-0 was restarted, try 2\nworker-1 was restarted, try 2"]

    run(main)


def test_a_restart_is_a_line_before_the_status_that_shows_it() -> None:
    class Restarted(Backend):
        async def follow(self, job: Job, *, since: float = 0.0) -> AsyncIterator[Event]:
            for count in (0, 1, 1):
                again = ReplicaStatus(ZERO, State.RUNNING, restarts=count, last_exit=1)
                yield Status(State.RUNNING, (again,))
            ends = (ReplicaStatus(ZERO, State.SUCCEEDED), ReplicaStatus(ONE, State.STOPPED))
            yield Status(State.SUCCEEDED, ends, decided_by=ZERO, settled=True)

    async def main() -> None:
        cell = Cell(Restarted(""))
        await cell.work
        assert cell.display.notices.splitlines() == [
            "worker-0 was restarted (exit code 1), try 2",
            "Succeeded with worker-0; worker-1 was still at work and was stopped (the setting "
            "linger gives others more time).",
        ]

    run(main)


def test_lines_of_a_replica_that_was_added_while_the_job_ran_are_shown() -> None:
    """Of an elastic job. Its markers are taken out as those of the others."""
    added = Replica("worker", 7)
    assert added not in JOB.replicas

    class Grows:
        async def follow(self, job: Job, *, since: float = 0.0) -> AsyncIterator[Event]:
            yield Output(added, b"here\n", 1)
            yield Status(State.SUCCEEDED, (ReplicaStatus(added, State.SUCCEEDED),))

    async def main() -> list[Event]:
        return [event async for event in logs.follow(Grows(), JOB)]  # type: ignore[arg-type]

    assert asyncio.run(main())[0] == Output(added, b"here\n", 1)


def test_an_open_line_before_a_breakpoint_ends_with_its_try() -> None:
    said = json.dumps({"pid": 3, "at": "", "again": False, "asked": False, "over": False})
    marker = f"{debug_wire.MARKER}{said}\n"

    class Retries:
        async def follow(self, job: Job, *, since: float = 0.0) -> AsyncIterator[Event]:
            runs = (ReplicaStatus(ZERO, State.RUNNING),)
            yield Status(State.RUNNING, runs)
            yield output(ZERO, f"45 % {marker}")
            yield Status(State.RUNNING, runs)
            yield output(ZERO, "46 %\n")
            yield output(ZERO, f"47 % {marker}")
            yield Status(State.RUNNING, runs, tries=2)
            yield output(ZERO, "0 %\n")

    async def main() -> bytes:
        events = logs.follow(Retries(), JOB)  # type: ignore[arg-type]
        return b"".join([event.data async for event in events if isinstance(event, Output)])

    assert asyncio.run(main()) == b"45 % 46 %\n47 % \n0 %\n"


class Again(Backend):
    """Worker-0 fails with a traceback, runs again, and ends in another way."""

    def __init__(self, then: str, *, tries: int, restarts: int) -> None:
        super().__init__("")
        self.then, self.tries, self.restarts = then, tries, restarts

    async def follow(self, job: Job, *, since: float = 0.0) -> AsyncIterator[Event]:
        runs = (ReplicaStatus(ZERO, State.RUNNING, 1.0), ReplicaStatus(ONE, State.RUNNING, 1.0))
        yield Status(State.RUNNING, runs, 1.0)
        yield output(ZERO, TRACE.format("ConnectionResetError: of the first run"))
        again = replace(runs[0], restarts=self.restarts)
        yield Status(State.RUNNING, (again, runs[1]), 1.0, tries=self.tries)
        if self.then:
            yield output(ZERO, f"{self.then}\n")
        yield status(State.STOPPED, settled=True, tries=self.tries)


@pytest.mark.parametrize(("tries", "restarts"), [(2, 0), (1, 1)])
@pytest.mark.parametrize(
    ("then", "said"), [("no data folder", ""), ("", ": ConnectionResetError: of the first run")]
)
def test_an_earlier_run_is_not_to_blame_if_the_last_one_wrote_something(
    then: str, said: str, tries: int, restarts: int
) -> None:
    async def main() -> None:
        cell = Cell(Again(then, tries=tries, restarts=restarts))
        error = await cell.error()
        assert error.message == f"worker-0 ended with exit code 1{said or '.'}"
        await cell.finish()

    run(main)
