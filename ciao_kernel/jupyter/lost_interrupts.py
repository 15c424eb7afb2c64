"""Raises an interrupt again that Python has swallowed.

A KeyboardInterrupt that is raised in the callback of a weak reference, in a finalizer or in a
function that runs at a fork goes no further: Python reports it and goes on (sys.unraisablehook).
An interrupt that comes while the garbage collector runs meets such a function first, and the cell
would go on as if nobody had pressed the stop button.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sys import UnraisableHookArgs
    from types import FrameType

_PAUSE = 0.02
"""Seconds until the interrupt is raised again: the swallowing function ends meanwhile."""
_LONGEST_PAUSE = 1.0
"""Each pause before the next try is twice as long, up to this: a C function may begin its wait anew
at each signal."""


@contextlib.contextmanager
def raising_again() -> Iterator[None]:
    """Raise swallowed interrupts again during the body, which is plain code.

    RunningCells uses it. It must be entered in the main thread, while SIGINT raises
    KeyboardInterrupt, and the caller sets the handler of SIGINT anew after it. A hook or a handler
    that the body sets stays.
    """
    before = sys.unraisablehook
    main, process = threading.get_ident(), os.getpid()
    running = True

    def hook(unraisable: UnraisableHookArgs) -> None:
        # A forked process shows the report: its parent was interrupted too.
        here = running and threading.get_ident() == main and os.getpid() == process
        usual = signal.getsignal(signal.SIGINT)
        if here and issubclass(unraisable.exc_type, KeyboardInterrupt) and callable(usual):
            again = _Again(usual, lambda: running)
            again.start()
        else:
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        running = False
        if sys.unraisablehook is hook:
            sys.unraisablehook = before


class _Again:
    """One interrupt that is sent until it has arrived.

    A signal that comes just before the main thread waits in the system (time.sleep, a read) does
    not end that wait, and Python calls the handler only after it. The sender needs the GIL, which
    the main thread gives away at this very moment, so this is not rare.

    Args:
        usual: The handler of SIGINT.
        running: Whether the cell still runs.
    """

    def __init__(
        self, usual: Callable[[int, FrameType | None], Any], running: Callable[[], bool]
    ) -> None:
        self._usual = usual
        self._running = running
        self._main = threading.get_ident()
        self._starting = True
        self._came = False

    def start(self) -> None:
        """Start to send; in the main thread."""
        signal.signal(signal.SIGINT, self._arrived)
        try:
            # threading.Thread would wait here for its start, and swallow the next one.
            _thread.start_new_thread(self._send, ())
        except BaseException:
            signal.signal(signal.SIGINT, self._usual)
            raise
        finally:
            # No call follows until the hook has returned, so Python calls no handler before.
            self._starting = False

    def _send(self) -> None:
        pause = _PAUSE
        time.sleep(pause)
        while self._running() and not self._came:
            signal.pthread_kill(self._main, signal.SIGINT)
            if signal.getsignal(signal.SIGINT) != self._arrived:
                return  # it has arrived, or the cell has set its own handler, which gets it once
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if self._starting:
            return  # Python would ignore an exception here too; the next one comes soon
        self._came = True
        if signal.getsignal(signal.SIGINT) == self._arrived:
            signal.signal(signal.SIGINT, self._usual)
        self._usual(number, frame)
