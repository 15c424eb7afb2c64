"""The guard of a supervisor: its parent, which ends the job if the supervisor is killed.

The supervisor finds every process of its job below itself. When it is killed (by the user, or for
memory), they become children of the guard, so that they can still be found. The guard sleeps until
then. If it is killed alone, the supervisor goes on without it. If both are killed, Linux sends
SIGTERM to the replicas (:func:`.parentage.end_with_parent`), and the next process of ciao that sees
the job ends the processes that still have its mark.

Standard library only, as in :mod:`.supervisor`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

from ciao_kernel.backends.local import parentage, processes


def fork_under_guard() -> None:
    """Fork, and return in the child. This process becomes its guard, and ends after it.

    SIGTERM to the guard is passed on. Its exit code is the child's.
    """
    # Blocked until it can be passed on: SIGTERM would end the guard alone.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    parentage.adopt_orphans()
    child = os.fork()
    if child:
        _guard(child)
    parentage.adopt_orphans()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _guard(child: int) -> None:
    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    ended = 0
    while ended != child:
        ended, status = os.wait()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # The number may belong to another process now.
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        processes.sweep(os.environ[processes.MARK])
    sys.exit(abs(code))
