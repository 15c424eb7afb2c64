"""What a stop does with a backend that is slow, or whose job goes on being told of as running."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel import background
from ciao_kernel.config import Settings
from ciao_kernel.jupyter.shutdown import Lifetime
from ciao_kernel.model import Event, Job, Owner, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.queries import HERE, Where
from ciao_kernel.model.source import SourceFile
from ciao_kernel.plugins import Plan
from ciao_kernel.session.following import Following
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from ciao_kernel.session.stopping import Stopper
from tests.helpers.jobs import Recorder

REPLICAS = (Replica("worker", 0), Replica("worker", 1))
JOB = Job("slow", "fake", "tensorflow", REPLICAS, 1.0)


class Slow:
    """A backend whose stop is certain when it is told to be, and done when it is told to be.

    Its job is told of as running for ever, as by a watch that hears nothing new.
    """

    name = "slow"
    outlives_kernel = True

    def __init__(self) -> None:
        self.promise, self.gone = asyncio.Event(), asyncio.Event()
        self.said: list[str] = []
        self.leaves = False

    async def is_host_terminating(self, job: Job) -> bool:
        return self.leaves

    async def stop(self, job: Job, reason: str, *, stop_certain: Callable[[], None]) -> None:
        await self.promise.wait()
        stop_certain()
        await self.gone.wait()
        self.said.append("stopped")

    async def delete(self, job: Job) -> None:
        self.said.append("deleted")

    def describe_leftovers(self, job: Job) -> str:
        return "something is left"

    async def follow(self, job: Job, *, since: float = 0.0) -> AsyncIterator[Event]:
        try:
            while True:
                replicas = (ReplicaStatus(one, State.RUNNING, time.time()) for one in REPLICAS)
                yield Status(State.RUNNING, tuple(replicas), time.time())
                await asyncio.sleep(0.1)
        finally:
            self.said.append("not followed any more")


class Ending(Slow):
    """A backend whose job has succeeded, while one of its replicas is still ending."""

    async def follow(self, job: Job, *, since: float = 0.0) -> AsyncIterator[Event]:
        states = (State.SUCCEEDED, State.RUNNING)
        replicas = (ReplicaStatus(one, state) for one, state in zip(REPLICAS, states, strict=True))
        yield Status(State.SUCCEEDED, tuple(replicas), time.time())
        await asyncio.Event().wait()


class Stop:
    """A cell that is stopped: its backend, its display, and what waits."""

    def __init__(
        self,
        *,
        delete: bool = False,
        wait: float | None = None,
        leaves: bool = False,
        writes: bool = False,
        lifetime: Lifetime | None = None,
    ) -> None:
        backend: Any = Slow()
        backend.leaves = leaves
        self.backend: Slow = backend
        self.display, self.lifetime = Recorder(), lifetime or Lifetime()
        self.stopper = Stopper(self.lifetime)
        following = Following(JOB, backend, self.display)
        self.record_task = asyncio.ensure_future(self._write(writes))
        stopping = self.stopper.stop(
            following, "a test", wait=wait, delete=delete, record_task=self.record_task
        )
        self.cell = asyncio.ensure_future(stopping)

    async def _write(self, writes: bool) -> None:
        """Write something when the job is not followed any more, and may be deleted."""
        while writes and "not followed any more" not in self.backend.said:
            await asyncio.sleep(0.02)
        if writes:
            await asyncio.sleep(0.1)
            self.backend.said.append("written")

    async def ended(self) -> None:
        """Wait until nothing works on it any more."""
        async with asyncio.timeout(20):
            while background._running:
                await asyncio.sleep(0.02)


def test_a_stopped_job_is_shown_as_stopped_whatever_is_still_told_of_it() -> None:
    async def main() -> None:
        stop = Stop()
        stop.backend.promise.set()
        await stop.cell
        assert "slow is stopping: something is left." in stop.display.notices
        stop.backend.gone.set()
        await stop.ended()
        assert stop.display.status.state is State.STOPPED
        assert {one.state for one in stop.display.status.replicas} == {State.STOPPED}
        assert stop.display.notices.endswith("slow is stopped; something is left")

    asyncio.run(main())


class Undecided(Lifetime):
    """Does not know for long whether a shutdown begins."""

    def __init__(self) -> None:
        super().__init__()
        self.decided = asyncio.Event()

    async def shutdown_begins(
        self, within: float, is_ending: Callable[[], Awaitable[bool]]
    ) -> bool:
        await self.decided.wait()
        return self.is_ending


def test_a_cell_tells_that_a_shutdown_spares_its_job_only_while_one_may_come() -> None:
    """Under a gateway the kernel may be killed before it knows that it is being shut down."""

    async def main() -> None:
        lifetime = Undecided()
        stop = Stop(wait=0.0, lifetime=lifetime)
        async with asyncio.timeout(60):
            while "stopping slow" not in stop.display.notices:
                await asyncio.sleep(0.02)
        told = "stopping slow (it keeps running if the kernel is being shut down)."
        assert stop.display.notices.splitlines()[0] == told
        stop.backend.promise.set()
        stop.backend.gone.set()
        lifetime.decided.set()
        await stop.cell
        await stop.ended()
        assert stop.display.notices.count("shut down") == 1

    asyncio.run(main())


def test_a_slow_stop_is_told_plainly_once_no_shutdown_comes() -> None:
    async def main() -> None:
        lifetime = Undecided()
        lifetime.decided.set()
        stop = Stop(wait=0.0, lifetime=lifetime)
        async with asyncio.timeout(60):
            while "stopping slow" not in stop.display.notices:
                await asyncio.sleep(0.02)
        assert stop.display.notices.splitlines()[0] == "stopping slow."
        stop.backend.promise.set()
        stop.backend.gone.set()
        await stop.cell
        await stop.ended()

    asyncio.run(main())


def test_a_quick_stop_is_told_by_its_end_alone() -> None:
    async def main() -> None:
        lifetime = Undecided()
        lifetime.decided.set()
        stop = Stop(wait=0.0, lifetime=lifetime)
        stop.backend.promise.set()
        stop.backend.gone.set()
        await stop.cell
        await stop.ended()
        assert "stopping slow" not in stop.display.notices
        assert "slow is stopped; something is left" in stop.display.notices

    asyncio.run(main())


def test_files_go_after_the_last_line_was_read_and_hold_the_process() -> None:
    async def main() -> None:
        stop = Stop(delete=True)
        stop.backend.promise.set()
        await stop.cell
        assert stop.lifetime.is_delayed()
        stop.backend.gone.set()
        await stop.ended()
        assert stop.backend.said == ["stopped", "not followed any more", "deleted"]
        assert not stop.lifetime.is_delayed()

    asyncio.run(main())


def test_files_go_after_the_last_one_was_written() -> None:
    async def main() -> None:
        stop = Stop(delete=True, writes=True)
        stop.backend.promise.set()
        stop.backend.gone.set()
        await stop.cell
        await stop.ended()
        assert stop.backend.said[-2:] == ["written", "deleted"]

    asyncio.run(main())


def test_a_stop_that_is_certain_holds_no_process() -> None:
    async def main() -> None:
        stop = Stop()
        await asyncio.sleep(0.1)
        assert stop.lifetime.is_delayed()
        stop.backend.promise.set()
        await stop.cell
        assert not stop.lifetime.is_delayed()
        stop.backend.gone.set()
        await stop.ended()

    asyncio.run(main())


def test_a_backend_that_cannot_tell_keeps_no_job_from_its_stop() -> None:
    async def main() -> None:
        stop = Stop(wait=0.0)
        stop.backend.is_host_terminating = None  # type: ignore[method-assign, assignment]
        stop.backend.promise.set()
        stop.backend.gone.set()
        await stop.cell
        await stop.ended()
        assert "stopped" in stop.backend.said

    asyncio.run(main())


def test_a_shutdown_that_comes_while_the_backend_is_asked_is_heard() -> None:
    async def main() -> None:
        stop = Stop(wait=0.0)

        async def asked(job: Job) -> bool:
            stop.lifetime.end()
            return False

        stop.backend.is_host_terminating = asked  # type: ignore[method-assign]
        await stop.cell
        await stop.ended()
        assert "stopped" not in stop.backend.said

    asyncio.run(main())


def test_a_process_that_stood_still_has_not_waited_for_a_shutdown() -> None:
    """Whoever asked it to end meanwhile is heard first."""

    async def main() -> None:
        lifetime = Lifetime()
        # A busy machine may hold this process up too, for shorter times, which do count.
        asyncio.get_running_loop().call_later(0.01, time.sleep, 1.5)
        asyncio.get_running_loop().call_later(1.55, lifetime.end)
        assert await lifetime.shutdown_begins(1.2, lambda: asyncio.sleep(0, False))

    asyncio.run(main())


@pytest.mark.parametrize("leaves", [True, False])
def test_a_job_is_left_where_its_kernels_place_is_known_to_end(leaves: bool) -> None:
    """As when a gateway deletes a pod, and SIGTERM takes longer than the wait for it."""

    async def main() -> None:
        stop = Stop(wait=0.0, leaves=leaves)
        stop.backend.promise.set()
        stop.backend.gone.set()
        await stop.cell
        await stop.ended()
        assert ("stopped" in stop.backend.said) is not leaves
        assert ("slow keeps running." in stop.display.notices) is leaves

    asyncio.run(main())


def test_a_second_interrupt_leaves_no_task_behind() -> None:
    async def main() -> None:
        stop = Stop()
        await asyncio.sleep(1.2)  # The promise is waited for by now.
        stop.cell.cancel()
        await asyncio.wait({stop.cell})
        assert stop.cell.cancelled()
        stop.backend.promise.set()
        stop.backend.gone.set()
        await stop.ended()

    asyncio.run(main())


def test_a_shutdown_waits_for_a_removal_whose_cell_was_interrupted() -> None:
    """It was overtaken: the kernel ended, and the job that was to go stayed in the cluster."""

    async def main() -> None:
        lifetime, gone = Lifetime(), asyncio.Event()

        async def remove() -> None:
            await gone.wait()

        cell = asyncio.ensure_future(Stopper(lifetime).finish(remove()))
        await asyncio.sleep(0)
        cell.cancel()
        await asyncio.wait({cell})
        shutdown = asyncio.ensure_future(lifetime.wait_until_idle(20))
        await asyncio.sleep(0.1)
        assert not shutdown.done()
        gone.set()
        await shutdown
        assert not lifetime.is_delayed()

    asyncio.run(main())


def test_what_outlasts_its_cell_can_be_waited_for() -> None:
    async def main() -> None:
        done = []

        async def work() -> None:
            await asyncio.sleep(0.1)
            done.append("work")

        background.start_background(work())
        await background.wait_until_idle(0)
        assert done == []
        await background.wait_until_idle(20)
        assert done == ["work"]

    asyncio.run(main())


def test_an_interrupt_while_the_last_replicas_of_a_succeeded_job_end() -> None:
    class Found(Session):
        async def find(self, name: str, where: Where = HERE) -> Any:
            return Ending(), JOB, None

    async def main() -> None:
        session, display = Found(Registry({}), Owner("a test"), Settings()), Recorder()
        cell = asyncio.ensure_future(session.attach("slow", display))
        async with asyncio.timeout(20):
            while not any(isinstance(event, Status) for event in display.events):
                await asyncio.sleep(0.02)
        cell.cancel()
        await asyncio.wait({cell})
        assert cell.cancelled()
        ended = [State.SUCCEEDED, State.STOPPED]
        assert [one.state for one in display.status.replicas] == ended
        assert session.last
        assert session.last.state is State.SUCCEEDED
        assert [one.state for one in session.last.replicas] == ended
        assert display.notices == ""

    asyncio.run(main())


class Submits(Slow):
    """A backend whose job exists when its cell is interrupted.

    Args:
        folder: The job's folder.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.promise.set()
        self.gone.set()

    async def check(self, plan: Plan) -> None: ...

    async def submit(self, *_: Any, outlive: bool) -> Job:
        task = asyncio.current_task()
        assert task
        task.cancel()  # arrives at whatever is waited for next
        return replace(JOB, folder=str(self.folder))


def run(backend: Submits, cell: str, folder: Path) -> tuple[bool, Recorder]:
    """Run a cell, and return whether it was cancelled."""
    display = Recorder()

    class Chosen(Session):
        def backend(self, asked: str | None) -> Any:
            return backend

    async def main() -> bool:
        session = Chosen(Registry({}), Owner("a test"), Settings(builder="folder"))
        running = asyncio.ensure_future(session.run(cell, display, folder))
        await asyncio.wait({running})
        await background.wait_until_idle(20)
        return running.cancelled()

    return asyncio.run(main()), display


def interrupted(cell: str, folder: Path) -> tuple[Submits, Recorder]:
    """Run a cell that is interrupted as soon as its job exists."""
    backend = Submits(folder / "job")
    cancelled, display = run(backend, cell, folder)
    assert cancelled
    return backend, display


def test_an_interrupt_as_soon_as_a_job_exists_stops_it(tmp_path: Path) -> None:
    """Nobody followed it yet, since its record was written first: it went on unseen."""
    backend, _ = interrupted("%framework=tensorflow\nprint()\n", tmp_path)
    assert "stopped" in backend.said


def test_an_interrupt_as_soon_as_a_detached_job_exists_leaves_it_and_the_cell_says_so(
    tmp_path: Path,
) -> None:
    backend, display = interrupted("%framework=tensorflow\n%detach\nprint()\n", tmp_path)
    assert "stopped" not in backend.said
    assert f"{JOB.name} runs in the background." in display.notices


def test_the_files_of_a_job_are_not_kept_in_memory_while_it_runs(tmp_path: Path) -> None:
    """Values of %input may be large, and the job may take days."""

    class Looks(Submits):
        async def submit(self, *_: Any, outlive: bool) -> Job:
            return replace(JOB, folder=str(self.folder))

        async def follow(self, job: Job, *, since: float = 0.0) -> AsyncIterator[Event]:
            for _ in range(100):  # its record is being written
                await asyncio.sleep(0.05)
                if not held():
                    break
            self.said.append("still held" if held() else "dropped")
            yield Status(State.SUCCEEDED, (), time.time(), settled=True)

    def held() -> bool:
        gc.collect()
        sent = [one for one in gc.get_objects() if isinstance(one, SourceFile)]
        return any(b"print('large')" in (one.data or b"") for one in sent)

    backend = Looks(tmp_path / "job")
    run(backend, "%framework=tensorflow\nprint('large')\n", tmp_path)
    assert backend.said == ["dropped"]
