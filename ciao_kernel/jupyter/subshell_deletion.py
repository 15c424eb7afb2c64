"""Ends the job cell of a subshell (ipykernel 7) before the subshell is deleted.

The stop of a job needs the event loop of its cell, which is deleted with the subshell. ipykernel
handles one control request at a time: a wait within one would delay interrupts and the shutdown.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable

from ciao_kernel import log
from ciao_kernel.background import start_background
from ciao_kernel.jupyter.interrupts import RunningCells
from ciao_kernel.jupyter.shutdown import Lifetime

_log = logging.getLogger(__name__)


async def delete_subshell(
    subshell: str,
    delete: Callable[[], Awaitable[None]],
    cells: RunningCells,
    lifetime: Lifetime,
    within: float,
) -> None:
    """Delete a subshell: at once, or in the background after the end of its job cell.

    Args:
        subshell: Its ID.
        delete: Deletes it, and sends the reply.
        cells: The running cells.
        lifetime: Tells of stops that go on behind their cells.
        within: Seconds that the end of the cell, and of what goes on behind it, may take.
    """

    async def end_first() -> None:
        until = time.monotonic() + within
        with log.ignored(_log, "ending the cell of a subshell"):
            await cells.end_subshell(subshell, within)
            await lifetime.wait_until_idle(until - time.monotonic(), thread)
        if not lifetime.is_ending:  # the shutdown deletes all subshells
            with log.ignored(_log, "deleting a subshell"):
                await delete()

    thread = cells.thread_of(subshell)
    if thread is not None and (cells.has_job(subshell) or lifetime.is_delayed(thread)):
        start_background(end_first())
    else:
        await delete()
