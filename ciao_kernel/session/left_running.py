"""Reports jobs left running by an earlier kernel, in the first cell that can see them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence

from ciao_kernel.errors import BackendError
from ciao_kernel.model import Job, Notice
from ciao_kernel.model.times import age
from ciao_kernel.plugins import Display
from ciao_kernel.session.session import Session

_log = logging.getLogger(__name__)

_PATIENCE = 2.0
"""Seconds within which the backends must answer."""
_TRIES = 3
_NAMED = 5
_SKEW = 5.0
"""Seconds by which a cluster's clock may differ from this machine's clock."""


class LeftRunning:
    """Reports once the user's running jobs that this process has not started.

    Args:
        label: Owner of the jobs that this process starts: ``ada@laptop kernel 4711``.
        clock: Returns the seconds since the epoch.
    """

    def __init__(self, label: str, clock: Callable[[], float] = time.time) -> None:
        self._label = label
        self._clock = clock
        self._began = clock()
        self._tries = 0

    def are_listed(self) -> None:
        """Report nothing any more: a command lists all jobs."""
        self._tries = _TRIES

    @contextlib.asynccontextmanager
    async def reported(
        self, session: Session, display: Display, named: Collection[str] = ()
    ) -> AsyncIterator[None]:
        """Query the backends in parallel with the body, which is never delayed.

        Args:
            session: Session of the cell.
            display: Receives the notice, before the job's own output or not at all.
            named: Names of jobs that are left out, such as the words of a command.
        """
        if self._tries >= _TRIES:
            yield
            return
        telling = self._tell(session, display, named, self._clock())
        asking = asyncio.get_running_loop().create_task(telling)
        try:
            yield
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _tell(
        self, session: Session, display: Display, named: Collection[str], began: float
    ) -> None:
        last = session.last
        faults: list[BackendError] = []
        try:
            async with asyncio.timeout(_PATIENCE):
                found = await session.jobs(faults)
        except Exception:  # the cell reports the fault itself if it is affected
            _log.debug("looking for jobs of earlier kernels failed", exc_info=True)
            self._tries += 1
            return
        if self._tries >= _TRIES or session.last is not last:
            return  # The job's own output has begun: the next cell reports the jobs.
        running = [job for job, status in found if not status.over and session.owns(job)]
        if any(self._may_be_of_cell(job, session, began) for job in running):
            return  # The next cell can tell.
        left = [job for job in running if self._is_earlier(job, session)]
        self._tries = self._tries + 1 if faults and not left else _TRIES
        if left := [job for job in left if job.name not in named]:
            display.show(Notice(_sentence(left, self._clock())))

    def _may_be_of_cell(self, job: Job, session: Session, began: float) -> bool:
        """Return whether a job is that of the cell which began then, or of a kernel just before."""
        return self._is_of_same_id(job, session) and job.created >= began - _SKEW

    def _is_earlier(self, job: Job, session: Session) -> bool:
        """Return whether a job was started neither by this kernel nor by another live process."""
        if job.owner == self._label:
            return self._is_of_same_id(job, session)
        host, number = _process(self._label)
        theirs, other = _process(job.owner)
        return theirs != host or not other or other == number or not _lives(other, job.created)

    def _is_of_same_id(self, job: Job, session: Session) -> bool:
        """Return whether an earlier kernel, whose ID was the same, can have started a job.

        In a container each kernel has the same ID, and a restart may take a second.
        """
        own = job.owner == self._label and job.name not in session.started
        return own and job.created < self._began + _SKEW


def _process(owner: str) -> tuple[str, str]:
    """Return user and machine, and the process ID of the kernel or command, "" if there is none."""
    who, _, rest = owner.partition(" ")
    number = rest.rpartition(" ")[2]
    return who, number if number.isdecimal() else ""


def _lives(number: str, made: float) -> bool:
    """Return whether the process that had this ID when a job was made is still alive.

    Each pod counts from 1, so an ID from another pod may also belong to a process or thread here.
    """
    import psutil

    try:
        if not psutil.pid_exists(int(number)):  # the ID of a thread is not the ID of a process
            return False
        process = psutil.Process(int(number))
        ended = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return not ended and process.create_time() <= made + _SKEW
    except (psutil.Error, OverflowError):  # the ID belongs to another user or machine
        return False


def _sentence(jobs: Sequence[Job], now: float) -> str:
    ages = [(job, age(now - job.created)) for job in jobs[-_NAMED:]]
    if len(jobs) == 1:
        ((job, old),) = ages
        return f"still running from before: {job.name} ({old}, `%ciao attach {job.reference}`)"
    more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
    text = ", ".join(f"{job.name} ({old})" for job, old in ages)
    return f"still running from before: {text}{more} (`%ciao attach NAME`)"
