"""Runs of a warm job that somebody finds, by the markers in the log of its first replica."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from ciao_kernel.delivery.warm.marks import MarkReader
from ciao_kernel.errors import BackendError, UsageError
from ciao_kernel.magics.directives import warm
from ciao_kernel.model import Job
from ciao_kernel.model.queries import LogOptions
from ciao_kernel.plugins import Backend

ROOT = "/tmp/ciao-warm"
"""Folder of the runs in a pod."""
RUN = "run-"
"""Beginning of the names of the folders of runs."""
_KEPT = 2
"""Runs whose folders an agent in a pod keeps."""
ENDS = LogOptions(tail=50)
"""Lines of a log in which the marker of a run's end is, if no run is active."""


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """The runs of a warm job so far."""

    job: Job
    newest: int
    """Number of the newest run; 0 if none has begun."""
    root: str
    """Folder of the runs in the replicas."""

    def run(self, number: int | None = None) -> Job:
        """Return a run, as the kernel that started it knows it.

        Args:
            number: Number of the run; None means the newest one, or the job if there is none.

        Raises:
            UsageError: No run has that number.
        """
        if number is None:
            return as_run(self.job, self.newest, self.root) if self.newest else self.job
        if 0 < number <= self.newest:
            return as_run(self.job, number, self.root)
        several = f"its runs are 1 to {self.newest}" if self.newest > 1 else "it has only run 1"
        there = several if self.newest else "none has begun"
        raise UsageError(f"{self.job.name} has no run {number}: {there}.")

    def has_folder(self, number: int) -> bool:
        """Return whether the replicas still have the folder of a run."""
        return not self.job.on_cluster or number > self.newest - _KEPT


async def find(backend: Backend, job: Job) -> FoundRuns:
    """Return the runs of a warm job.

    Args:
        backend: The job's backend.
        job: The job; one that is no warm job has no runs.
    """
    if not warm.is_warm(job.header) or not job.replicas:
        return FoundRuns(job, 0, job.workdir)
    data = await backend.log(job, job.replicas[0])
    return await asyncio.to_thread(of_log, job, data)


def of_log(job: Job, data: bytes) -> FoundRuns:
    """Return the runs of a warm job by the whole log of its first replica."""
    # A pod's log may have lost its beginning, with the marker of the folder.
    newest, root = 0, ROOT if job.on_cluster else job.workdir
    for part in MarkReader().read(data):
        if isinstance(part, dict):
            if part.get("ev") == "ready":
                root = str(part.get("root") or root)
            # Of a run that printed much, the log may have the end alone.
            if part.get("ev") in ("begin", "end") and isinstance(part.get("id"), int):
                newest = part["id"]
    return FoundRuns(job, newest, root)


def as_run(job: Job, number: int, root: str) -> Job:
    """Return a run of a warm job.

    Args:
        job: The job.
        number: Number of the run.
        root: Folder of the runs in the replicas.
    """
    place = f"{root}/{RUN}{number}"
    return replace(
        job,
        warm_run=number,
        root=place,
        place=job.place if job.on_cluster else place,
        folder=job.files,
    )


async def is_idle(backend: Backend, job: Job) -> bool:
    """Return whether the replicas of a warm job wait for a run, as far as their logs tell it.

    Args:
        backend: The job's backend.
        job: The job; one that is not warm never waits.
    """
    if not warm.is_warm(job.header) or job.warm_run or not job.replicas:
        return False
    logs = (backend.log(job, one, ENDS) for one in job.replicas)
    ends = await asyncio.gather(*logs, return_exceptions=True)
    for fault in (one for one in ends if isinstance(one, BaseException)):
        if not isinstance(fault, BackendError):
            raise fault
    return all(isinstance(one, bytes) and _waits(one) for one in ends)


def _waits(data: bytes) -> bool:
    """Return whether the last marker in the end of a log is none of a run that is active."""
    marks = [part.get("ev") for part in MarkReader().read(data) if isinstance(part, dict)]
    return bool(marks) and marks[-1] in ("ready", "end", "given")


async def find_run(backend: Backend, job: Job, number: int | None = None) -> Job:
    """Return one run of a warm job.

    Args:
        backend: The job's backend.
        job: The job; one that is not warm, or a run, is returned as it is.
        number: Number of the run; None means the newest one.

    Raises:
        UsageError: The job has no runs, or none with that number.
    """
    if number is not None:
        refuse_unless_warm(job)
    if not warm.is_warm(job.header) or job.warm_run:
        return job
    return (await find(backend, job)).run(number)


def refuse_unless_warm(job: Job) -> None:
    """Raise UsageError if a job cannot have several runs."""
    if not warm.is_warm(job.header):
        raise UsageError(
            f"{job.name} has no runs: only a job with %warm has several.", "Leave --run out."
        )
