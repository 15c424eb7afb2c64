"""Jobs that run on from a kernel that is gone: the first cell that could see them says so."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence

from ciao_kernel.errors import BackendError
from ciao_kernel.model import Job, Notice
from ciao_kernel.model.times import age
from ciao_kernel.plugins import Display
from ciao_kernel.session.session import Session

_PATIENCE = 2.0
"""Seconds in which the backends have to answer."""
_TRIES = 3
_NAMED = 5
_SKEW = 5.0
"""Seconds that a cluster's clock may be behind this machine's."""
_VERBS = frozenset({"run", "describe", "logs", "attach", "delete", "exec"})
"""Commands that ask backends; `jobs` does too, and says all by itself."""


class Earlier:
    """Says once which jobs of this user run that this process has not started.

    Args:
        label: The owner of jobs that this process starts: ``ada@laptop kernel 4711``.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._began = time.time()
        self._tries = 0

    @contextlib.asynccontextmanager
    async def told(
        self, session: Session, display: Display, words: Sequence[str] | None = None
    ) -> AsyncIterator[None]:
        """Ask beside what is done within; that is never delayed.

        Args:
            session: Of the cell.
            display: Gets the sentence, before the job's own output or not at all.
            words: Of a command; None for a job cell. Jobs that it names are left out.
        """
        if words is not None and words[:1] == ["jobs"]:
            self._tries = _TRIES
        if self._tries >= _TRIES or (words is not None and not _VERBS.intersection(words[:1])):
            yield
            return
        asking = asyncio.get_running_loop().create_task(self._tell(session, display, words or ()))
        try:
            yield
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _tell(self, session: Session, display: Display, words: Sequence[str]) -> None:
        last = session.last
        faults: list[BackendError] = []
        try:
            async with asyncio.timeout(_PATIENCE):
                found = await session.jobs(faults)
        except Exception:  # the cell itself says what is wrong, where that matters to it
            self._tries += 1
            return
        if self._tries >= _TRIES or session.last is not last:
            return  # The job's own output has begun. The next cell says it.
        left = [
            job
            for job, status in found
            if not status.over and session.owns(job) and self._is_earlier(job)
        ]
        self._tries = self._tries + 1 if faults and not left else _TRIES
        if left := [job for job in left if job.name not in words]:
            display.show(Notice(_sentence(left)))

    def _is_earlier(self, job: Job) -> bool:
        """Whether neither this kernel has started a job nor another one that still lives."""
        if job.owner == self._label:  # in a container, the kernel before had the same number
            return job.created < self._began - _SKEW
        host, number = _process(self._label)
        theirs, other = _process(job.owner)
        return theirs != host or not other or other == number or not _lives(other, job.created)


def _process(owner: str) -> tuple[str, str]:
    """User and machine, and the number of the kernel or command, "" where there is none."""
    who, _, rest = owner.partition(" ")
    number = rest.rpartition(" ")[2]
    return who, number if number.isdecimal() else ""


def _lives(number: str, made: float) -> bool:
    """Whether the process lives that had a number when a job was made.

    Each pod counts from 1, so a number of another pod is some process's or thread's here too.
    """
    import psutil

    try:
        if not psutil.pid_exists(int(number)):  # a thread's is no process's
            return False
        process = psutil.Process(int(number))
        ended = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return not ended and process.create_time() <= made + _SKEW
    except (psutil.Error, OverflowError):  # a number of somebody else's
        return False


def _sentence(jobs: Sequence[Job]) -> str:
    ages = [(job, age(time.time() - job.created)) for job in jobs[-_NAMED:]]
    if len(jobs) == 1:
        ((job, old),) = ages
        return f"still running from before: {job.name} ({old}, `%ciao attach {job.reference}`)"
    more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
    text = ", ".join(f"{job.name} ({old})" for job, old in ages)
    return f"still running from before: {text}{more} (`%ciao attach NAME`)"
