"""The loop of a GUI is paused while a job cell runs, and goes on in any case."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from ciao_kernel.jupyter import gui_loop


def test_a_cell_that_is_cancelled_before_it_begins_gives_the_loop_back() -> None:
    async def main() -> None:
        kernel = SimpleNamespace(eventloop="tk")

        async def cell() -> None:
            async with gui_loop.paused(kernel):
                raise AssertionError("it was cancelled before")

        task = asyncio.ensure_future(cell())
        await asyncio.sleep(0)
        assert kernel.eventloop is None
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert kernel.eventloop == "tk"

    asyncio.run(main())


def test_a_loop_that_the_cell_chose_stays() -> None:
    async def main() -> None:
        kernel = SimpleNamespace(eventloop="tk")
        async with gui_loop.paused(kernel):
            kernel.eventloop = "qt"
        assert kernel.eventloop == "qt"

    asyncio.run(main())
