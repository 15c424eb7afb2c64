"""Tasks that an interrupt must not cancel: they continue after the end of their cell.

Work that callers share (:class:`SharedWork`) ends with its owner instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

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


def cancel_in_its_loop(task: asyncio.Task[Any]) -> bool:
    """Cancel a task of any event loop; return whether the caller can wait for its end.

    Jobs run in the loops of the kernel, of its subshells and of :func:`thread_loop`. To cancel a
    task of another thread's loop is not safe, and one of a loop that is closed an error.
    """
    loop = task.get_loop()
    if loop is asyncio.get_running_loop():
        task.cancel()
        return True
    with contextlib.suppress(RuntimeError):  # closed, and nothing goes on in it
        loop.call_soon_threadsafe(task.cancel)
    return False


class SharedWork(Generic[_T]):
    """Work that simultaneous callers share, such as a sign-in that opens a page in a browser.

    A caller that is cancelled leaves it running for some seconds: a caller that comes meanwhile
    waits for the same run, and one that comes later starts another. So looks that come each second
    share a run, and a user who interrupts a run that cannot end, because its page was closed, gets
    a new one. Unlike the work of :func:`start_background` it delays no end of a kernel or command:
    its owner closes it.

    Args:
        patience: Seconds for which a run without callers continues.
    """

    def __init__(self, patience: float = 5.0) -> None:
        self._patience = patience
        self._task: asyncio.Task[_T] | None = None
        self._callers = 0
        self._ending: set[asyncio.Task[_T]] = set()
        """Runs that were left alone, and may take a moment to end."""
        self._left: asyncio.TimerHandle | None = None

    async def run(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Return the result of the run that is under way, or start one; raise its error.

        Args:
            work: Makes the coroutine of a new run.

        Raises:
            CancelledError: Also at :meth:`close`, for whoever waits.
        """
        self._stay()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(work())
            self._task.add_done_callback(_forget)  # perhaps nobody waits for its error any more
        self._callers += 1
        try:
            return await asyncio.shield(self._task)
        finally:
            self._callers -= 1
            if not self._callers and self._task is not None and not self._task.done():
                self._stay()
                loop = asyncio.get_running_loop()
                self._left = loop.call_later(self._patience, self._abandon)

    async def close(self) -> None:
        """End a run that is under way, and wait for its end."""
        self._stay()
        if self._task is not None and not self._task.done():
            self._abandon()
        await cancel_all(self._ending)

    def _stay(self) -> None:
        if self._left is not None:
            self._left.cancel()
            self._left = None

    def _abandon(self) -> None:
        """Cancel the run; the next caller starts another, even if this one takes time to end."""
        task, self._task = self._task, None
        if task is not None:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            task.cancel()


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
