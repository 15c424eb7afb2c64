"""The event files of ``%tensorboard``: where a program writes them, and where they are here."""

from __future__ import annotations

import posixpath
from pathlib import Path

from ciao_kernel.delivery.replica_files import OWN
from ciao_kernel.model import Job, JobSpec, Replica

VARIABLE = "CIAO_LOGDIR"
_COPIES = "tensorboard"


def variables(spec: JobSpec, workdir: str, replica: Replica | None = None) -> dict[str, str]:
    """Return the variable with the folder for event files; empty without ``%tensorboard``.

    Args:
        spec: The cell's header.
        workdir: The program's folder.
        replica: The replica, where all replicas have one folder: each writes into its own part
            then. None: the folder is the replica's own.
    """
    if spec.tensorboard is None:
        return {}
    parts = (spec.tensorboard, str(replica)) if replica else (spec.tensorboard,)
    return {VARIABLE: posixpath.join(workdir, *parts)}


def here(job: Job, folder: str) -> Path:
    """Return the folder of this machine with the event files of a job.

    Args:
        job: The job.
        folder: Value of ``%tensorboard``.
    """
    if not job.on_cluster:
        return Path(job.workdir, folder)
    return Path(job.files, OWN, _COPIES)


def copies(job: Job, replica: Replica) -> Path:
    """Return the folder for copies of a pod's event files."""
    return Path(job.files, OWN, _COPIES, str(replica))


def writer(job: Job) -> Replica:
    """Return the replica whose event files are copied: that which writes them in most programs."""
    for role in ("chief", "master", "worker"):  # of MPI, ranks write, and not the launcher
        for one in job.replicas:
            if one.role == role and one.index == 0:
                return one
    return job.replicas[0]
