"""Arrangements of a process with Linux about parents and children (prctl(2)).

Used by the supervisor and its guard, whose interpreter finds no site packages: standard library
only. ctypes is imported late, because it takes a few milliseconds and some Pythons lack it; without
it, jobs run without these arrangements.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from collections.abc import Callable, Collection

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make this process the parent of all its descendants whose own parent ends.

    So no process of a job leaves the tree below its supervisor, not even a daemon with a session
    and an environment of its own. A child of fork(2) has to ask again.
    """
    load()(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent(parent: int) -> None:
    """Let Linux send SIGTERM to this process when its parent is gone, even if it was killed.

    It is called after fork(2) and is still true after execve(2). SIGTERM, not SIGKILL: torchrun
    ends its own processes then.

    Args:
        parent: The process that forked; it may be gone already.
    """
    load()(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def reap_adopted(own: Collection[int | None]) -> None:
    """Reap ended children, except those of ``own``, whose exit codes another function reads.

    Behind an ended child of ``own`` nothing is reaped; SIGCHLD of that child causes the next call.
    """
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in own:
                return
            os.waitpid(ended.si_pid, 0)


@functools.cache
def load() -> Callable[[int, int, int, int, int], int]:
    """Return prctl(2), or a stand-in without effect if this Python has no ctypes.

    Called before fork(2), so that the child imports nothing before execve(2).
    """
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError):
        return lambda *_: -1
    prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    call: Callable[[int, int, int, int, int], int] = prctl
    return call
