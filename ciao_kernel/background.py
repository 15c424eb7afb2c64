"""Tasks that an interrupt must not cancel: they continue after the end of their cell."""

from __future__ import annotations

import asyncio
import logging
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


def _forget(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()):
        _log.debug("a task in the background failed", exc_info=error)
