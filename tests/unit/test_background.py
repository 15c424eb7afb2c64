"""Work that callers share: who joins a run, and when a run without callers ends."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from ciao_kernel.background import SharedWork


class SignIn:
    """Ends when it is told to; tells how often it was started, and cancelled."""

    def __init__(self) -> None:
        self.answer = asyncio.Event()
        self.started = self.cancelled = 0

    async def __call__(self) -> int:
        self.started += 1
        number = self.started
        try:
            await self.answer.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            await asyncio.sleep(0.05)  # such as the end of a program
            raise
        return number


async def look(shared: SharedWork[int], work: SignIn, seconds: float) -> None:
    """Wait for a short time, as a caller that a user interrupts."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(shared.run(work), seconds)


def test_looks_that_follow_each_other_share_a_run() -> None:
    async def main() -> None:
        shared, work = SharedWork[int](0.3), SignIn()
        for _ in range(5):
            await look(shared, work, 0.05)
            await asyncio.sleep(0.1)
        last = asyncio.create_task(shared.run(work))
        await asyncio.sleep(0.5)
        work.answer.set()
        assert await last == 1
        assert (work.started, work.cancelled) == (1, 0)

    asyncio.run(main())


def test_a_run_that_all_callers_left_ends_and_the_next_caller_starts_another() -> None:
    async def main() -> None:
        shared, work = SharedWork[int](0.1), SignIn()
        await asyncio.gather(look(shared, work, 0.01), look(shared, work, 0.02))
        while not work.cancelled:
            await asyncio.sleep(0.005)
        again = asyncio.create_task(shared.run(work))  # the first run has not ended yet
        await asyncio.sleep(0.15)
        work.answer.set()
        assert await again == 2
        assert (work.started, work.cancelled) == (2, 1)

    asyncio.run(main())


def test_a_caller_that_stays_keeps_the_run() -> None:
    async def main() -> None:
        shared, work = SharedWork[int](0.02), SignIn()
        stays = asyncio.create_task(shared.run(work))
        await look(shared, work, 0.01)
        await asyncio.sleep(0.1)
        work.answer.set()
        assert await stays == 1

    asyncio.run(main())


def test_a_close_ends_a_run_and_waits_for_its_end() -> None:
    async def main() -> None:
        shared, work = SharedWork[int](), SignIn()
        waits = asyncio.create_task(shared.run(work))
        await asyncio.sleep(0.01)
        await shared.close()
        assert len(asyncio.all_tasks() - {waits}) == 1
        with pytest.raises(asyncio.CancelledError):
            await waits
        await shared.close()
        assert (work.started, work.cancelled) == (1, 1)

    asyncio.run(main())
