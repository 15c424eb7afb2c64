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
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_PAUSE = 0.02
"""Seconds until the interrupt is raised again: the swallowing function ends meanwhile."""


@contextlib.contextmanager
def raising_again() -> Iterator[None]:
    """Raise swallowed interrupts again during the body, which is plain code.

    RunningCells uses it. It must be entered in the main thread, while SIGINT raises
    KeyboardInterrupt. A hook that the body sets stays.
    """
    before = sys.unraisablehook
    main, process = threading.get_ident(), os.getpid()
    running = True

    def hook(unraisable: UnraisableHookArgs) -> None:
        # A forked process shows the report: its parent was interrupted too.
        here = running and threading.get_ident() == main and os.getpid() == process
        if here and issubclass(unraisable.exc_type, KeyboardInterrupt):
            # threading.Thread would wait here for its start, and swallow the next one.
            _thread.start_new_thread(interrupt, ())
        else:
            before(unraisable)

    def interrupt() -> None:
        time.sleep(_PAUSE)
        if running:
            signal.pthread_kill(main, signal.SIGINT)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        running = False
        if sys.unraisablehook is hook:
            sys.unraisablehook = before
