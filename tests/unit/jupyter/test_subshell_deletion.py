"""The deletion of a subshell waits for its own job cell alone, and holds up no other request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator

import pytest

from ciao_kernel import background
from ciao_kernel.jupyter.interrupts import RunningCells
from ciao_kernel.jupyter.shutdown import Lifetime
from ciao_kernel.jupyter.subshell_deletion import delete_subshell

LONG = 3600.0
"""Seconds; no test waits for their end."""


class Subshell:
    """A thread with an event loop, which runs a cell until it is let go, however often stopped."""

    def __init__(self, name: str, cells: RunningCells, lifetime: Lifetime) -> None:
        self._name, self._cells, self._lifetime = name, cells, lifetime
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def begin(self, *, behind: bool = False) -> Callable[[], None]:
        """Begin a cell; return what ends it.

        Args:
            behind: End the cell itself at once, but not the stop of its job.
        """
        let_go, begun = asyncio.Event(), threading.Event()

        async def work() -> None:
            with self._lifetime.delay_shutdown():
                begun.set()
                while not let_go.is_set():
                    try:
                        await let_go.wait()
                    except asyncio.CancelledError:
                        continue

        async def cell() -> None:
            task = background.start_background(work())
            request = {"header": {"subshell_id": self._name}}
            with self._cells.cancel_on_interrupt(task, request):
                await (asyncio.sleep(0) if behind else task)

        running = asyncio.run_coroutine_threadsafe(cell(), self.loop)
        begun.wait()
        if behind:
            running.result()

        def end() -> None:
            self.loop.call_soon_threadsafe(let_go.set)

        return end

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Kernel:
    """A kernel with two subshells, and the deletions that it has made."""

    def __init__(self) -> None:
        self.cells, self.lifetime = RunningCells(lambda: None), Lifetime()
        self.own, self.other = (Subshell(name, self.cells, self.lifetime) for name in "ab")
        self.deleted: list[str] = []

    def delete(self, subshell: str, within: float = LONG) -> Awaitable[None]:
        async def deletion() -> None:
            self.deleted.append(subshell)

        return delete_subshell(subshell, deletion, self.cells, self.lifetime, within)


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    made = Kernel()
    yield made
    made.own.close()
    made.other.close()


@pytest.mark.parametrize("behind", [False, True], ids=["cell", "behind"])
def test_it_waits_in_the_background_for_what_needs_the_loop(kernel: Kernel, behind: bool) -> None:
    async def main() -> None:
        end = kernel.own.begin(behind=behind)
        await kernel.delete("a")
        assert kernel.deleted == []
        end()
        await background.wait_until_idle(LONG)
        assert kernel.deleted == ["a"]

    asyncio.run(main())


@pytest.mark.parametrize("behind", [False, True], ids=["cell", "behind"])
@pytest.mark.parametrize("used", [False, True], ids=["new", "used"])
def test_it_does_not_wait_for_other_subshells(kernel: Kernel, behind: bool, used: bool) -> None:
    async def main() -> None:
        if used:
            kernel.own.begin()()
            while kernel.cells.has_job("a") or kernel.lifetime.is_delayed():
                await asyncio.sleep(0)
        end = kernel.other.begin(behind=behind)
        await kernel.delete("a")
        assert kernel.deleted == ["a"]
        end()
        await kernel.lifetime.wait_until_idle(LONG)

    asyncio.run(main())


def test_its_wait_is_not_for_other_subshells(kernel: Kernel) -> None:
    async def main() -> None:
        end, end_other = kernel.own.begin(), kernel.other.begin()
        await kernel.delete("a")
        end()
        await background.wait_until_idle(LONG)
        assert kernel.deleted == ["a"]
        end_other()
        await kernel.lifetime.wait_until_idle(LONG)

    asyncio.run(main())


def test_a_cell_that_does_not_end_is_left(kernel: Kernel) -> None:
    async def main() -> None:
        end = kernel.own.begin()
        await kernel.delete("a", within=0)
        await background.wait_until_idle(LONG)
        assert kernel.deleted == ["a"]
        end()
        await kernel.lifetime.wait_until_idle(LONG)

    asyncio.run(main())


def test_a_shutdown_deletes_what_is_still_waited_for(kernel: Kernel) -> None:
    """ipykernel's thread that answers is ending then: the kernel would wait for it for ever."""

    async def main() -> None:
        end = kernel.own.begin()
        await kernel.delete("a")
        kernel.lifetime.end()
        end()
        await background.wait_until_idle(LONG)
        assert kernel.deleted == []

    asyncio.run(main())
