"""Suggests a remedy for a program that may not write to a volume of its job."""

from __future__ import annotations

import posixpath
import re

from ciao_kernel.delivery import checkpoints
from ciao_kernel.magics.directives import stored_volumes
from ciao_kernel.magics.directives.surviving import has_checkpoint
from ciao_kernel.model import Job

_DENIED = re.compile(
    r"(Permission denied|Read-only file system|Operation not permitted):? "
    r"(?:'([^'\n]+)'|\"([^\"\n]+)\")"
)
_READ_ONLY = "Read-only file system"


def volume_hint(text: str, job: Job, role: str = "") -> str:
    """Return a remedy; "" if the program was denied nothing in a volume.

    Args:
        text: The end of the replica's log.
        job: The job, in a cluster.
        role: The replica's role; "" if it does not matter.
    """
    if not job.on_cluster:
        return ""
    found = [(why, one or other) for why, one, other in _DENIED.findall(text)]
    for why, path in reversed(found):
        if (where := _volume_of(posixpath.join(job.workdir, path), job, role)) is None:
            continue
        place, what = where
        if why == _READ_ONLY:
            return f"The volume in {place} can only be read: leave out :ro, or write elsewhere."
        return (
            f"The program's user may not write to {what} in {place}. Its folders belong to another "
            "user: an administrator can change their owner or mode, or name a folder for which you "
            "have the right."
        )
    return ""


def _volume_of(path: str, job: Job, role: str) -> tuple[str, str] | None:
    """Return the place of the volume that has a path, and what it is; None if none has it."""
    known = stored_volumes.volumes_in(job.header, role)
    asked = [(one.where, f"the volume {one.what}") for one in known]
    if has_checkpoint(job.header):
        asked.append((checkpoints.WHERE, "the claim of %checkpoint"))
    for where, what in asked:
        place = posixpath.join(job.workdir, where)
        if f"{posixpath.normpath(path)}/".startswith(f"{place}/"):
            return where, what
    return None
