"""The start of a replica whose image need not have Python: its variables by a POSIX shell.

A ConfigMap has a file of shell commands for each index of an Indexed Job; ``sh`` runs the file of
its pod and then becomes the program.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

INDEX = "JOB_COMPLETION_INDEX"
"""The Job controller sets it (https://kubernetes.io/docs/concepts/workloads/controllers/job/)."""


def files(replicas: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the files by their names: ``0.env`` for the first replica.

    Args:
        replicas: The variables of each replica, in the order of indexes.
    """
    return {
        f"{index}.env": "".join(f"export {k}={shlex.quote(v)}\n" for k, v in variables.items())
        for index, variables in enumerate(replicas)
    }


def command(folder: str) -> tuple[str, ...]:
    """Return the words before the program's own command.

    Args:
        folder: Where the files are in the replica.
    """
    # `.` ends a POSIX shell if there is no such file.
    return ("sh", "-c", f'. "{folder}/${INDEX}.env" && exec "$@"', "sh")
