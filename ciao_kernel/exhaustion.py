"""Errors of the system that say that a limit of this process or machine is reached."""

from __future__ import annotations

import errno
import resource

from ciao_kernel.errors import EnvironmentFault


def fault_of(error: OSError, *, of_processes: bool = False) -> EnvironmentFault | None:
    """Return an error that names the limit; None if the cause is another one.

    Args:
        error: The error.
        of_processes: It may be the error of the start of a process.
    """
    match error.errno:
        case errno.EMFILE:
            most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            return EnvironmentFault(
                f"this process has too many open files; its limit is {most}.",
                "Close files that other cells have opened, or restart the kernel. `ulimit -n` in "
                "the shell that starts Jupyter sets the limit.",
            )
        case errno.ENFILE:
            return EnvironmentFault(
                "this machine has too many open files.",
                "Close programs that have many of them open.",
            )
        case errno.EAGAIN if of_processes:
            return EnvironmentFault(
                "no more processes can be started here.",
                "End some of yours, or request fewer replicas. `ulimit -u` or the container sets "
                "the limit.",
            )
        case errno.ENOMEM:
            return EnvironmentFault(
                "this machine has no memory left.",
                "Restart kernels that you no longer use, or request fewer replicas.",
            )
    return None
