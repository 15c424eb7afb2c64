"""Ends processes of jobs; calls at the same moment share one search of all processes."""

from __future__ import annotations

import asyncio

from ciao_kernel.backends.local import processes
from ciao_kernel.background import start_background

_asked: dict[asyncio.AbstractEventLoop, tuple[list[str], asyncio.Task[None]]] = {}
"""The marks of the next search of each event loop, and the search."""


async def sweep(*marks: str) -> None:
    """Kill all processes of jobs except this process; return when none is left.

    A search reads a file of every process of this machine, as often for one job as for a thousand.
    All calls before the next turn of the event loop therefore wait for the same search, which a
    cancellation of one of them does not end.
    """
    loop = asyncio.get_running_loop()
    if loop not in _asked:
        _asked[loop] = [], start_background(_search(loop))
    wanted, search = _asked[loop]
    wanted += marks
    await asyncio.shield(search)


async def _search(loop: asyncio.AbstractEventLoop) -> None:
    wanted, _ = _asked.pop(loop)
    await asyncio.to_thread(processes.sweep, *wanted)
