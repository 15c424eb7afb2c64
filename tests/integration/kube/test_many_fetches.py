"""`ciao fetch` of many replicas: a few at once, with the same result as one after the other."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError
from ciao_kernel.model import Event, Job, Notice, Progress, Replica
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.model.queries import Streams
from ciao_kernel.plugins import SentFiles
from ciao_kernel.session import fetching
from tests.helpers.command_pod import Pod

WORKERS = tuple(Replica("worker", number) for number in range(6))
PATIENCE = 60.0
Work = Callable[[Replica], Any]


async def nothing(_: Replica) -> None:
    """Go on at once."""


@dataclass
class Backend:
    """Replicas with a folder each; a test says what happens before and after their files come."""

    folder: Path
    before: Work
    after: Work = nothing
    running: int = 0
    most: int = 0
    began: list[int] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    ended: dict[int, asyncio.Event] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for one in WORKERS:
            self.ended[one.index] = asyncio.Event()
            path = self.folder / str(one) / "model/net"
            path.parent.mkdir(parents=True)
            path.write_text("odd" if one.index % 2 else "even")

    async def execute(
        self, job: Job, replica: Replica, command: Sequence[str], streams: Streams
    ) -> int:
        self.began.append(replica.index)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.before(replica)
            code = await Pod(self.folder / str(replica)).execute(command, streams)
            await self.after(replica)
            return code
        except asyncio.CancelledError:
            self.cancelled.append(replica.index)
            raise
        finally:
            self.running -= 1
            self.ended[replica.index].set()

    async def other(self, number: int) -> None:
        """Wait until the files of another replica were sent."""
        async with asyncio.timeout(PATIENCE):
            await self.ended[number].wait()
            await asyncio.sleep(0.1)  # and have their place


class Ended(Backend):
    """Replicas that have ended, with their files on a claim."""

    async def sent(self, job: Job, replica: Replica) -> SentFiles:
        if replica.index < 3:
            await self.other(replica.index + 1)
        self.ended[replica.index].set()
        execute = partial(self.execute, job, replica)
        return SentFiles(OutputWay.CLAIM, 10**9, str(replica), {}, execute, None, None)


async def fetch(
    backend: Backend,
    words: Sequence[str] = ("model/",),
    see: Callable[[Event], object] = lambda _: None,
) -> tuple[Any, list[Event]]:
    """Fetch; return the result, and what was shown."""
    job = Job(
        "job", "kubernetes", "tensorflow", WORKERS, 1.0, place="team", kind_of_place="namespace",
        header="%output=model/\n", folder=str(backend.folder / "here"),
    )  # fmt: skip
    shown: list[Event] = []
    settings = Settings(cluster_python=sys.executable)

    def show(event: Event) -> None:
        shown.append(event)
        see(event)

    some: Any = backend
    done = await fetching.fetch(some, job, WORKERS, words, settings, show)
    return done, shown


def notices(shown: list[Event]) -> list[str]:
    return [one.text for one in shown if isinstance(one, Notice)]


def test_four_come_at_once_and_equal_files_go_to_the_first(tmp_path: Path) -> None:
    async def main() -> None:
        async def before(replica: Replica) -> None:
            if replica.index < 3:
                await backend.other(replica.index + 1)

        backend = Backend(tmp_path, before)
        done, shown = await fetch(backend)
        assert (backend.most, sorted(backend.began)) == (4, [0, 1, 2, 3, 4, 5])
        assert notices(shown) == []
        (line,) = done.lines
        assert "worker-0/model/net (4 bytes, worker-0, worker-2, worker-4)" in line
        assert "worker-1/model/net (3 bytes, worker-1, worker-3, worker-5)" in line

    asyncio.run(main())


def test_the_errors_of_some_hide_no_files_and_are_said_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async def before(replica: Replica) -> None:
            if replica.index == 1:
                await backend.other(4)
            if replica.index in (1, 4):
                raise BackendError(f"{replica} has no pod.")

        backend = Backend(tmp_path, before)
        done, shown = await fetch(backend)
        assert notices(shown) == ["worker-1 has no pod.", "worker-4 has no pod."]
        assert "worker-1/model/net (3 bytes, worker-3, worker-5)" not in done.lines[0]
        assert "worker-3/model/net (3 bytes, worker-3, worker-5)" in done.lines[0]

    asyncio.run(main())


def test_the_first_error_is_raised_if_nothing_came(tmp_path: Path) -> None:
    async def main() -> None:
        async def before(replica: Replica) -> None:
            if replica.index == 0:
                await backend.other(3)
            raise BackendError(f"{replica} has no pod.")

        backend = Backend(tmp_path, before)
        with pytest.raises(BackendError, match=r"^worker-0 has no pod\.$"):
            await fetch(backend)

    asyncio.run(main())


def test_what_is_said_keeps_the_order_and_a_claim_is_read_by_one_at_a_time(tmp_path: Path) -> None:
    async def main() -> None:
        backend = Ended(tmp_path, nothing)
        done, shown = await fetch(backend, ["model/", "other"])
        assert notices(shown) == [
            f"{one} has ended, and gives the files of %output alone." for one in WORKERS
        ]
        assert (backend.most, done.missing) == (1, ("other",))
        assert backend.began[0] != 0, "the others did not wait for it"

    asyncio.run(main())


def test_how_far_a_later_one_is_waits_for_no_turn(tmp_path: Path) -> None:
    async def main() -> None:
        seen = asyncio.Event()

        async def wait(replica: Replica) -> None:
            async with asyncio.timeout(PATIENCE):
                await seen.wait()

        async def before(replica: Replica) -> None:
            if replica.index == 0:
                await wait(replica)

        def see(event: Event) -> None:
            if isinstance(event, Progress) and event.step == "fetching the files of worker-1":
                seen.set()

        await fetch(Backend(tmp_path, before, wait), see=see)

    asyncio.run(main())


def test_an_interrupt_ends_all(tmp_path: Path) -> None:
    async def main() -> None:
        four = asyncio.Event()

        async def before(replica: Replica) -> None:
            if len(backend.began) == 4:
                four.set()
            await asyncio.sleep(PATIENCE)

        backend = Backend(tmp_path, before)
        task = asyncio.ensure_future(fetch(backend))
        async with asyncio.timeout(PATIENCE / 2):
            await four.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (backend.began, sorted(backend.cancelled)) == ([0, 1, 2, 3], [0, 1, 2, 3])

    asyncio.run(main())


def test_who_cleans_up_is_cancelled_once(tmp_path: Path) -> None:
    """A second time would leave the pod that reads a claim."""

    async def main() -> None:
        four, cleaned = asyncio.Event(), []

        async def before(replica: Replica) -> None:
            if len(backend.began) == 4:
                four.set()
            try:
                await asyncio.sleep(PATIENCE)
            finally:
                await asyncio.sleep(0.1 * replica.index)
                cleaned.append(replica.index)

        backend = Backend(tmp_path, before)
        task = asyncio.ensure_future(fetch(backend))
        async with asyncio.timeout(PATIENCE / 2):
            await four.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert cleaned == [0, 1, 2, 3]

    asyncio.run(main())


def test_an_error_of_this_machine_ends_all(tmp_path: Path) -> None:
    async def main() -> None:
        async def before(replica: Replica) -> None:
            if replica.index == 3:
                raise OSError("no space")
            await asyncio.sleep(PATIENCE)

        backend = Backend(tmp_path, before)
        async with asyncio.timeout(PATIENCE / 2):
            with pytest.raises(OSError, match="no space"):
                await fetch(backend)
        assert {0, 1, 2} <= set(backend.cancelled)
        assert backend.running == 0

    asyncio.run(main())
