"""Pauses the event loop of a GUI (``%gui tk``, ``%matplotlib qt``) while a job cell runs.

ipykernel 7 runs that loop within a callback of its own loop, which stands still until the next
shell message. A job cell is a task of that loop: it would not go on, and the stop button would have
no effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Any

_ADVANCE = 0.01
"""Seconds; longer than the millisecond after which ipykernel enters the loop of the GUI again."""


@contextlib.asynccontextmanager
async def paused(kernel: Any) -> AsyncIterator[None]:
    """Pause the loop of a GUI during the body; windows stand still as they do in a plain cell.

    Args:
        kernel: ipykernel's kernel. A cell of a subshell has a loop of its own, and pauses nothing.
    """
    gui = kernel.eventloop
    # ipykernel 6 has a queue, in which the loop of the GUI waits for the end of the cell.
    waits = gui is None or hasattr(kernel, "msg_queue")
    if waits or threading.current_thread() is not threading.main_thread():
        yield
        return
    kernel.eventloop = None
    try:
        # A timer that ipykernel has set sees that and is the last: a new loop would be a second
        # one.
        await asyncio.sleep(_ADVANCE)
        yield
    finally:
        if kernel.eventloop is None:
            kernel.eventloop = gui
