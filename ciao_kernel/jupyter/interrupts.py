"""The running cells of a kernel, and the effect of an interrupt on each.

ipykernel lets SIGINT raise KeyboardInterrupt wherever the main thread happens to be. That suits
plain code; if a cell waits, the exception would surface in the event loop and end the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from ciao_kernel.jupyter.lost_interrupts import raising_again

_CLEANUP_TIME = 3.0
"""Seconds in which further interrupts of a cell are ignored, because it is being cleaned up."""

_EARLY_LIMIT = 5.0
"""Seconds in which an interrupt that came before its cell still counts. Its time and the cell's
may come from different clocks, so it must not stop a cell that the user runs later."""


class RunningCells:
    """The running cells, and the effect of an interrupt on each.

    While the main thread handles a cell, SIGINT is collected here and cancels the task of a job.
    It raises KeyboardInterrupt only within plain code. Jobs on the threads of subshells, which
    receive no signals, are cancelled by message.

    A cell and its interrupt come on different channels, so the interrupt may be first. It is noted
    then, and the cell that was sent before it is interrupted as soon as it begins.

    Args:
        on_sigterm: Called in the main thread if SIGTERM arrives while a job runs there. It must
            end the process.
    """

    def __init__(self, on_sigterm: Callable[[], Any]) -> None:
        self._on_sigterm = on_sigterm
        self.main_request: dict[str, Any] | None = None
        """The request of the job cell on the main thread; None if no job runs there."""
        self._main_task: asyncio.Task[Any] | None = None
        self._close_prompt: Callable[[], bool] = lambda: False
        self._interrupted = False
        self._early_interrupt: tuple[float, datetime] | None = None
        self._sent_time: datetime | None = None
        self._lock_waiters: set[asyncio.Task[Any]] = set()
        self._lock = threading.Lock()
        self._subshell_tasks: dict[asyncio.Task[Any], str] = {}
        """The tasks of other threads, each with the ID of its subshell."""
        self._threads: weakref.WeakValueDictionary[str, threading.Thread]
        self._threads = weakref.WeakValueDictionary()
        self._cancelled: weakref.WeakKeyDictionary[asyncio.Task[Any], float]
        self._cancelled = weakref.WeakKeyDictionary()

    def store_interrupts(self) -> None:
        """Note interrupts from now on, because no cell runs; a kernel calls this at its start."""
        signal.signal(signal.SIGINT, lambda *_: self._store_interrupt())
        os.register_at_fork(after_in_child=self._restore_handlers)

    def _restore_handlers(self) -> None:
        """Give signals their usual effect in a forked process, which has no cell to end."""
        if signal.getsignal(signal.SIGINT) == self._on_sigint:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if signal.getsignal(signal.SIGTERM) in (self._handle_sigterm, _ignore):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def store_and_raise_interrupts(self) -> None:
        """Let SIGINT also raise KeyboardInterrupt, because a request of another kind begins."""

        def on_sigint(*_: Any) -> None:
            self._store_interrupt()
            raise KeyboardInterrupt

        signal.signal(signal.SIGINT, on_sigint)

    def interrupt_sent(self, date: object) -> None:
        """Take the time at which the interrupt that comes next was sent; any thread.

        Args:
            date: From the header of an ``interrupt_request``.
        """
        self._sent_time = _header_time(date)

    def _store_interrupt(self) -> None:
        sent, self._sent_time = self._sent_time, None
        self._early_interrupt = (time.monotonic(), sent or datetime.now(UTC))

    def collect_interrupts(self, date: object) -> Any:
        """Collect interrupts from now on, because a cell begins on the main thread.

        Args:
            date: From the header of the cell's request: an interrupt that was sent after it, and
                came before it, is the first to be collected.

        Returns:
            The previous handler of SIGINT.

        Raises:
            ValueError: The current thread is not the main thread, so it receives no signals.
        """
        before = signal.signal(signal.SIGINT, self._on_sigint)
        early, self._early_interrupt = self._early_interrupt, None
        cell_sent = _header_time(date)
        if early is not None and cell_sent is not None:
            received, sent = early
            if time.monotonic() - received < _EARLY_LIMIT and sent >= cell_sent:
                self._interrupted = True
        return before

    def forget_interrupts(self) -> None:
        """Forget the interrupts of the cell that has ended."""
        self._interrupted = False
        self._sent_time = None

    def _on_sigint(self, *_: Any) -> None:
        """Handle SIGINT."""
        if self._close_prompt():
            return
        self._interrupted = True
        if self._main_task is not None:
            self._cancel(self._main_task)

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task, unless it was just cancelled: that would cut its clean-up short."""
        now = time.monotonic()
        if now - self._cancelled.get(task, -_CLEANUP_TIME) >= _CLEANUP_TIME:
            self._cancelled[task] = now
            task.get_loop().call_soon_threadsafe(task.cancel)

    @contextlib.contextmanager
    def raising_interrupts(self, *, ignore_earlier: bool = False) -> Iterator[None]:
        """Let SIGINT raise KeyboardInterrupt, as plain code expects.

        Args:
            ignore_earlier: Ignore an interrupt that came before: it has stopped this cell's job.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            if self._interrupted and not ignore_earlier:
                raise KeyboardInterrupt
            with raising_again():
                yield
        finally:
            signal.signal(signal.SIGINT, self._on_sigint)

    @contextlib.contextmanager
    def cancel_on_interrupt(
        self,
        task: asyncio.Task[Any],
        request: dict[str, Any],
        close_prompt: Callable[[], bool] = lambda: False,
    ) -> Iterator[None]:
        """Let interrupts cancel this task during the body.

        Args:
            task: The task of the cell.
            request: The request of the cell.
            close_prompt: Closes an open prompt of the cell, and returns whether there was one: such
                an interrupt does nothing else.
        """
        if threading.current_thread() is not threading.main_thread():
            subshell = request["header"].get("subshell_id") or ""
            with self._lock:
                self._subshell_tasks[task] = subshell
                self._threads[subshell] = threading.current_thread()
            try:
                yield
            finally:
                with self._lock:
                    self._subshell_tasks.pop(task, None)
            return
        self._main_task, self.main_request = task, request
        self._close_prompt = close_prompt
        waiting, self._lock_waiters = self._lock_waiters, set()
        for one in waiting:
            one.cancel()
        if self._interrupted:
            task.cancel()
        # Only while a job runs: plain code may be in a C function, where no handler is called.
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._handle_sigterm)
        try:
            yield
        finally:
            self._main_task = self.main_request = None
            self._close_prompt = lambda: False
            if signal.getsignal(signal.SIGTERM) == self._handle_sigterm:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _handle_sigterm(self, *_: Any) -> None:
        self._on_sigterm()

    def ignore_sigterm(self) -> None:
        """Ignore SIGTERM from now on: a shutdown has begun. Does nothing in other threads.

        jupyter_client sends SIGTERM after half of the time that it gives a shutdown. A handler of
        the user's code stays.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, self._handle_sigterm):
            signal.signal(signal.SIGTERM, _ignore)

    def restore_sigterm(self) -> None:
        """Let SIGTERM end the process again after :meth:`ignore_sigterm`."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) == _ignore:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def cancel_subshells(self, subshell: str | None = None) -> None:
        """Cancel the jobs on other threads.

        Args:
            subshell: The ID of the only subshell that is meant; None: all of them.
        """
        for task in self._open_subshell_tasks(subshell):
            with contextlib.suppress(RuntimeError):  # its subshell was just deleted
                self._cancel(task)

    async def end(self, within: float) -> None:
        """Cancel the cells of all jobs, and wait at most this many seconds for their end."""
        self.cancel_subshells()
        if (task := self._main_task) is not None:
            self._cancel(task)
        until = time.monotonic() + within
        while self._open_subshell_tasks() or self._main_task is not None:
            if time.monotonic() > until:
                return
            await asyncio.sleep(0.02)

    async def end_subshell(self, subshell: str, within: float) -> None:
        """Cancel the cell of a subshell's job, and wait at most this many seconds for its end."""
        self.cancel_subshells(subshell)
        until = time.monotonic() + within
        while self._open_subshell_tasks(subshell) and time.monotonic() < until:
            await asyncio.sleep(0.02)

    def has_job(self, subshell: str) -> bool:
        """Return whether a job cell of a subshell runs."""
        return bool(self._open_subshell_tasks(subshell))

    def thread_of(self, subshell: str) -> threading.Thread | None:
        """Return the thread of a subshell; None if it had no job cell."""
        with self._lock:
            return self._threads.get(subshell)

    def _open_subshell_tasks(self, subshell: str | None = None) -> set[asyncio.Task[Any]]:
        """Return the tasks of other threads; those of a deleted subshell ended with its loop."""
        with self._lock:
            self._subshell_tasks = {
                task: own
                for task, own in self._subshell_tasks.items()
                if not task.get_loop().is_closed()
            }
            return {task for task, own in self._subshell_tasks.items() if subshell in (None, own)}

    async def acquire_unless_job(self, lock: asyncio.Lock) -> bool:
        """Wait for the main thread's lock, but not for a job.

        Returns:
            True if the caller now has the lock; False if a job runs.
        """
        task = asyncio.current_task()
        assert task is not None
        if self.main_request is not None:
            return False
        self._lock_waiters.add(task)
        try:
            await lock.acquire()
        except asyncio.CancelledError:
            if task in self._lock_waiters:
                raise
            task.uncancel()  # A job has begun.
            return False
        finally:
            self._lock_waiters.discard(task)
        return True


def _ignore(*_: Any) -> None:
    """Ignore a signal; programs that are started meanwhile do not inherit this, as SIG_IGN."""


def _header_time(date: object) -> datetime | None:
    """Return the time in a message's header, which has a zone; None if there is none."""
    return date if isinstance(date, datetime) else None
