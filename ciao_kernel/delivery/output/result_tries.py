"""The values of a job that starts again (``%retries``): only those of its last try are its own."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from ciao_kernel import file_lock, log, private_files
from ciao_kernel.delivery.output import results
from ciao_kernel.delivery.output.result_writer import INDEX
from ciao_kernel.magics.directives import outputs
from ciao_kernel.model import Job

_log = logging.getLogger(__name__)

_NUMBER, _LOCK = "try", "try.lock"


def begin(job: Job, job_files: Path) -> None:
    """Remove the values of earlier tries, unless another follower has begun this one before.

    The last try may give none, and those of an earlier one would be taken for the job's.

    Args:
        job: The try that begins.
        job_files: The job's folder on this machine.
    """
    if job.tries == 1 or not outputs.names(job.header):
        return
    place = job_files / results.PLACE
    with log.ignored(_log, "removing old values", OSError, private_files.Untrusted):
        private_files.make_folders(place, job_files)
        with file_lock.block(place / _LOCK, required=False):
            if _begun(place) >= job.tries:
                return
            for index in place.glob(f"*/{INDEX}"):
                index.unlink(missing_ok=True)
            (place / _NUMBER).write_text(str(job.tries), encoding="utf-8")


def _begun(place: Path) -> int:
    """Return the number of the last try that has begun."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return int((place / _NUMBER).read_text(encoding="utf-8"))
    return 1
