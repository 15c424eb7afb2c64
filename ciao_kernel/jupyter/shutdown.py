"""Distinguishes an interrupt that means "stop" from one that begins the kernel's shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from ciao_kernel import log

_log = logging.getLogger(__name__)


class Lifetime:
    """Distinguishes a stop from a shutdown (:class:`ciao_kernel.session.stopping.Lifetime`).

    jupyter_client begins every shutdown and restart with an interrupt; the shutdown request
    follows 3 to 120 ms later (measured, 8.10). Under a remote launcher the request may never come:
    the pod is deleted, and the kernel receives SIGTERM 5 to 100 ms after the interrupt (measured,
    Enterprise Gateway 3.3). A kernel that receives no SIGTERM is killed 2 s later. Therefore the
    wait is longer there.
    """

    _REMOTE_WAIT, _REMOTE_WAIT_WITHOUT_SIGNALS = 1.5, 3.0
    _INITS = frozenset({"tini", "dumb-init", "docker-init", "catatonit"})
    """First processes of containers that forward signals. A shell does not."""

    def __init__(self) -> None:
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._delays: list[threading.Thread] = []
        """The thread of each :meth:`delay_shutdown` that holds."""

    @property
    def is_ending(self) -> bool:
        """Return whether there was a request to shut the kernel down."""
        return self._ending.is_set()

    def end(self) -> None:
        """Note a request to shut the kernel down. May be called from any thread."""
        self._ending.set()

    @contextlib.contextmanager
    def delay_shutdown(self) -> Iterator[None]:
        """Let :meth:`wait_until_idle` wait for the end of the body; for any thread."""
        thread = threading.current_thread()
        with self._lock:
            self._delays.append(thread)
        try:
            yield
        finally:
            with self._lock:
                self._delays.remove(thread)

    def is_delayed(self, thread: threading.Thread | None = None) -> bool:
        """Return whether a :meth:`delay_shutdown` holds.

        Args:
            thread: The only thread that counts; None: all do.
        """
        with self._lock:
            return thread in self._delays if thread is not None else bool(self._delays)

    async def wait_until_idle(self, within: float, thread: threading.Thread | None = None) -> None:
        """Wait until no :meth:`delay_shutdown` holds.

        Args:
            within: Seconds to wait at most.
            thread: The only thread that counts; None: all do.
        """
        until = time.monotonic() + within
        while self.is_delayed(thread) and time.monotonic() < until:
            await asyncio.sleep(0.02)

    async def shutdown_begins(
        self, within: float, is_ending: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Return whether a shutdown begins within this many seconds, or ``is_ending`` then."""
        if "RESPONSE_ADDRESS" in os.environ:
            gets_sigterm = _first_process() in self._INITS
            remote = self._REMOTE_WAIT if gets_sigterm else self._REMOTE_WAIT_WITHOUT_SIGNALS
            within = max(within, remote)
        waited, last = 0.0, time.monotonic()
        while not self._ending.is_set() and waited < within:
            await asyncio.sleep(0.02)
            now = time.monotonic()
            gap = now - last
            # A process that was suspended received no messages meanwhile: do not count that time.
            waited, last = waited + (gap if gap < 0.5 else 0.02), now
        if self._ending.is_set():
            return True
        with log.ignored(_log, "asking how the kernel ends"):  # then the job is stopped
            if await is_ending():
                return True
        return self._ending.is_set()


def _first_process() -> str:
    """Return the name of process 1 of this container, or "" if it cannot be read."""
    try:
        return Path("/proc/1/comm").read_text().strip()
    except OSError:
        return ""


lifetime = Lifetime()
"""Lifetime of this process; the kernel ends it."""

MAX_SHUTDOWN_DELAY = 5.0
"""Seconds that a shutdown waits at most for deletions that no other process would do;
jupyter_client kills a kernel that takes longer."""
