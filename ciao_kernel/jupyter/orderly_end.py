"""The end of the kernel: its cells end first, and its connections are closed."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable

from ciao_kernel import log
from ciao_kernel.background import thread_loop
from ciao_kernel.jupyter.interrupts import RunningCells

_log = logging.getLogger(__name__)

_CLOSE_TIMEOUT = 0.5
"""Seconds that connections may take to close."""


class OrderlyEnd:
    """Ends what runs, by a request or by a signal.

    Args:
        cells: The running cells.
        main_loop: Returns the loop of the main thread.
    """

    def __init__(
        self, cells: RunningCells, main_loop: Callable[[], asyncio.AbstractEventLoop]
    ) -> None:
        self._cells = cells
        self._main_loop = main_loop
        self._tasks: list[asyncio.Task[None]] = []

    async def of_cells(self) -> None:
        """Tell jobs that the last interrupt began a shutdown, and wait for the end of their cells.

        Runs in the control thread on a shutdown, in the main thread on SIGTERM.
        """
        from ciao_kernel.jupyter import cells, shutdown

        shutdown.lifetime.end()
        until = time.monotonic() + shutdown.MAX_SHUTDOWN_DELAY
        await self._cells.end(shutdown.MAX_SHUTDOWN_DELAY)
        await shutdown.lifetime.wait_until_idle(until - time.monotonic())
        # Connections belong to the main loop, which the user's code may block, and those of job
        # cells within plain cells to the other one.
        inner = [thread_loop()] if thread_loop.cache_info().currsize else []
        for loop in (self._main_loop(), *inner):
            closing = asyncio.run_coroutine_threadsafe(cells.close(), loop)
            with log.ignored(_log, "closing the connections"):
                async with asyncio.timeout(_CLOSE_TIMEOUT):
                    await asyncio.wrap_future(closing)

    def by_sigterm(self) -> None:
        """Treat a SIGTERM during a job as a shutdown."""

        async def end() -> None:
            try:
                await self.of_cells()
            finally:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGTERM)

        loop = self._main_loop()
        loop.call_soon_threadsafe(lambda: self._tasks.append(loop.create_task(end())))
