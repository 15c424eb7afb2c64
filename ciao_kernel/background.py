"""Tasks that an interrupt must not cancel: they continue after the end of their cell."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_running: set[asyncio.Task[Any]] = set()
"""Strong references: an event loop keeps only weak references to its tasks."""


def start_background(work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
    """Start work that needs no waiting caller. A caller that waits must shield the task.

    Returns:
        The task. If nobody retrieves its error, the error is dropped.
    """
    task = asyncio.get_running_loop().create_task(work)
    _running.add(task)
    task.add_done_callback(_forget)
    return task


async def wait_until_idle(within: float) -> None:
    """Wait for the unfinished tasks of this event loop.

    Args:
        within: Seconds to wait at most.
    """
    loop = asyncio.get_running_loop()
    if mine := {task for task in _running.copy() if task.get_loop() is loop}:
        await asyncio.wait(mine, timeout=within)


@functools.cache
def thread_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop on a thread of its own, which runs as long as the process lives.

    For callers that cannot await, because the event loop of their thread already runs.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="ciao", daemon=True).start()
    return loop


def _forget(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()):
        _log.debug("a task in the background failed", exc_info=error)
