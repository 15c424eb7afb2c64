"""Tasks that an interrupt must not cancel: they continue after the end of their cell."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
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


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they have ended, with whatever error."""
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)


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

    For callers that cannot await, because the event loop of their thread already runs. A process
    that was forked has none of the threads of its parent, so its first call makes another loop.
    """
    os.register_at_fork(after_in_child=thread_loop.cache_clear)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="ciao", daemon=True).start()
    return loop


async def in_thread(work: Callable[[], _T]) -> _T:
    """Run work that blocks, such as a request, in a thread; return its result, or raise its error.

    A cancelled caller does not wait for the thread, and neither does the end of this process:
    Python waits at its end for the threads of :func:`asyncio.to_thread`.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def settle(result: Callable[[], object]) -> None:
        if not done.done():
            result()

    def run() -> None:
        try:
            found = work()
            result: Callable[[], object] = functools.partial(done.set_result, found)
        except BaseException as error:
            if isinstance(error, StopIteration):  # no future takes it
                error = RuntimeError("the iterator has ended")
            result = functools.partial(done.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=run, name="ciao-request", daemon=True).start()
    return await done


def _forget(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()):
        _log.debug("a task in the background failed", exc_info=error)
