"""The start of a replica whose image need not have Python: its variables by a POSIX shell.

A ConfigMap has a file of shell commands for each index of an Indexed Job; ``sh`` runs the file of
its pod and then becomes the program.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

INDEX = "JOB_COMPLETION_INDEX"
"""The Job controller sets it (https://kubernetes.io/docs/concepts/workloads/controllers/job/)."""


_FIRST, _LEFT, _AT = "ciao_first", "ciao_left", "ciao_at"
"""Variables of the shell alone: the name of the first replica, the seconds to look it up, and the
time of a look."""
# Without getent a program starts at once. The nslookup of busybox is no substitute: it does not
# try the search domains for a name with a dot, and would not find the name of any replica.
# A look may take long. Without `date` each counts as one second.
_WAIT = f"""\
while [ "${{{_LEFT}:-0}}" -gt 0 ] && command -v getent >/dev/null && \
{_AT}=$(date +%s 2>/dev/null || echo 0) && ! getent hosts "${_FIRST}" >/dev/null 2>&1; do
sleep 1; {_LEFT}=$(({_LEFT} + {_AT} - $(date +%s 2>/dev/null || echo 1))); done"""


def files(
    replicas: Iterable[Mapping[str, str]], first: str = "", patience: int = 0
) -> dict[str, str]:
    """Return the files by their names: ``0.env`` for the first replica.

    Args:
        replicas: The variables of each replica, in the order of indexes.
        first: Name for which a program waits; "" if it does not wait.
        patience: Seconds for which it waits, at most.
    """
    wait = f"{_FIRST}={shlex.quote(first)}\n{_LEFT}={patience}\n" if first else ""
    return {
        f"{index}.env": wait
        + "".join(f"export {k}={shlex.quote(v)}\n" for k, v in variables.items())
        for index, variables in enumerate(replicas)
    }


def command(folder: str) -> tuple[str, ...]:
    """Return the words before a command that runs beside the program, as of ``ciao exec``.

    Args:
        folder: Where the files are in the replica.
    """
    # `.` ends a POSIX shell if there is no such file.
    return ("sh", "-c", f'{_take(folder)} && exec "$@"', "sh")


def start(folder: str) -> tuple[str, ...]:
    """Return the words before the program's own command, which waits for the first replica's name.

    Args:
        folder: Where the files are in the replica.
    """
    return ("sh", "-c", f'{_take(folder)} || exit\n{_WAIT}\nexec "$@"', "sh")


def _take(folder: str) -> str:
    return f'. "{folder}/${INDEX}.env"'
