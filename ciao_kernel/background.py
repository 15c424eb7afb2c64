"""Work that an interrupt must not cut short: it goes on when the cell that began it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")

_running: set[asyncio.Task[Any]] = set()
"""A loop alone would forget its tasks: it refers to them weakly."""


def lasting(work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
    """Begin work that nobody has to wait for. Whoever does, shields it.

    Returns:
        Its task. An error that nobody asks it for is dropped.
    """
    task = asyncio.get_running_loop().create_task(work)
    _running.add(task)
    task.add_done_callback(_forget)
    return task


async def settled(within: float) -> None:
    """Wait for the work that was begun in this loop and goes on.

    Args:
        within: Seconds to wait at most.
    """
    loop = asyncio.get_running_loop()
    if mine := {task for task in _running.copy() if task.get_loop() is loop}:
        await asyncio.wait(mine, timeout=within)


def _forget(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled():
        task.exception()  # asked for, or asyncio would report it
