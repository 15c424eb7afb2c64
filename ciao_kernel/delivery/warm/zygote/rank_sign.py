"""Shows the rank of a forked process to readers outside (``inspection/process_state.py``).

``/proc/PID/environ`` of a fork is that of the zygote, so it cannot tell the processes of a replica
apart. The name of a descriptor can, also while the process is in a library in C. Children that are
forked have it too, as they have the variables; those that start another program lose it, and have
the variables in their own ``environ``.
"""

from __future__ import annotations

import contextlib
import ctypes

SIGN = "ciao-rank-"
"""Name of the file in memory; the rank follows."""
_CLOSE_ON_EXEC = 1


def show_rank(rank: str) -> None:
    """Open a file without content whose name has the rank; a system without such files has none.

    Called in each of several processes of a replica.

    Args:
        rank: The number of this process in its replica.
    """
    # Not os.memfd_create: a Python that was built for an older C library lacks it.
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).memfd_create(f"{SIGN}{rank}".encode(), _CLOSE_ON_EXEC)
