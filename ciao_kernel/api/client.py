"""Runs coroutines of a session for code that cannot await them, such as a plain cell."""

from __future__ import annotations

import asyncio
import atexit
import functools
import logging
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from ciao_kernel import config, log
from ciao_kernel.background import thread_loop
from ciao_kernel.config import Settings
from ciao_kernel.errors import CiaoError, JobFailed
from ciao_kernel.model import Event, Job, Owner
from ciao_kernel.session.owner import current_user
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

Work = Callable[[Session], Coroutine[Any, Any, _T]]
"""A coroutine function that uses the session."""

_CLOSING = 0.5
"""Seconds that connections may take to close when the process ends."""


class Client:
    """A session on the event loop of another thread, with connections of its own.

    Connections belong to one event loop, so a kernel's own session cannot be used here.

    Args:
        host: Returns the host of this process; called before each use.
    """

    def __init__(self, host: Callable[[], Host]) -> None:
        self._host = host
        self._inherited: list[Session] = []
        """Sessions of the processes that this one was forked from. They are kept, because the end
        of such an object would complain about its connections, which the parent still uses."""
        self._open()

    def _open(self) -> None:
        self._pid = os.getpid()
        self._loop = thread_loop()
        owner = Owner(f"{current_user()} process {self._pid}")
        self._session = Session(Registry(), owner, self._host().settings())

    def run(self, work: Work[_T]) -> _T:
        """Run a coroutine to its end and return its result.

        Args:
            work: Receives the session.

        Raises:
            KeyboardInterrupt: The caller was interrupted; the coroutine is cancelled.
            CiaoError: The coroutine failed.
        """
        future = self.start(work)
        try:
            return self.result(future)
        except BaseException:
            future.cancel()
            raise

    def start(self, work: Work[_T]) -> Future[_T]:
        """Start a coroutine and return its future, which any thread may wait for."""
        if self._pid != os.getpid():  # forked: the loop runs in the parent alone
            self._inherited.append(self._session)
            self._open()
        session = self._session
        session.settings = self._host().settings()
        return asyncio.run_coroutine_threadsafe(work(session), self._loop)

    def result(self, future: Future[_T], timeout: float | None = None) -> _T:
        """Wait for a started coroutine; a timeout or an interrupt does not end it.

        Args:
            future: From :meth:`start`.
            timeout: Maximum number of seconds.

        Raises:
            TimeoutError: The coroutine is not done.
            CiaoError: The coroutine failed.
        """
        try:
            return future.result(timeout)
        except CiaoError as error:
            self._host().prepare(error)
            raise

    def prepared(self, error: CiaoError) -> CiaoError:
        """Return an error that a coroutine did not raise, as :meth:`result` raises others."""
        self._host().prepare(error)
        return error

    def close(self) -> None:
        """Close the open connections. A later call opens them again."""
        if self._pid != os.getpid():
            return  # they are the parent's
        with log.ignored(_log, "closing the connections"):
            closing = asyncio.run_coroutine_threadsafe(self._session.close(), self._loop)
            closing.result(_CLOSING)


class NoDisplay:
    """Shows nothing (:class:`ciao_kernel.plugins.Display`)."""

    def begin(self, job: Job, follow: tuple[str, ...]) -> None:
        """Do nothing."""

    def show(self, event: Event) -> None:
        """Do nothing."""

    def conclude(self, error: JobFailed) -> bool:
        """Do nothing."""
        return False

    async def end(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Host:
    """Settings and display of errors that the process around plain code gives to its client."""

    settings: Callable[[], Settings]
    """Returns the current settings; called before each use."""
    prepare: Callable[[CiaoError], object]
    """Receives each error before it is raised, to change how it is shown."""


_hosts: list[Host] = []


def use_host(host: Host) -> None:
    """Use a kernel's settings, which ``%ciao config`` may change, and its way to show errors."""
    _hosts[:] = [host]


@functools.cache
def default() -> Client:
    """Return the client of this process.

    Raises:
        SettingError: A setting is invalid.
    """
    client = Client(lambda: _hosts[-1] if _hosts else _script())
    atexit.register(client.close)
    return client


@functools.cache
def _script() -> Host:
    """Return the host of a process without a kernel: Python's tracebacks show the hint."""
    settings = config.load()

    def add_hint(error: CiaoError) -> None:
        if error.hint and error.hint not in getattr(error, "__notes__", ()):  # raised again
            error.add_note(error.hint)

    return Host(lambda: settings, add_hint)
