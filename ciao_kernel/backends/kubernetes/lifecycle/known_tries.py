"""The tries of jobs that this process knows: the newest of each, and those that end with it."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.model import Job, Manifest

_LOOK = 0.05
"""Seconds between two looks for the end of what another event loop does."""


class LoopsLock:
    """A lock that callers in several event loops share, as an asyncio.Lock cannot be.

    A cell follows a job in the loop of the kernel, and `%ciao attach` in a subshell in its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        while not self._lock.acquire(blocking=False):  # a wait here would stop the whole loop
            await asyncio.sleep(_LOOK)

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


class KnownTries:
    """The tries of jobs, by the uid of the first."""

    def __init__(self) -> None:
        self._newest: dict[str, Job] = {}
        self._stopped: set[str] = set()
        self._creations: dict[str, LoopsLock] = {}

    def newest(self, job: Job) -> Job:
        """Return the newest known try of a job."""
        newest = self._newest.get(job.identity)
        return newest if newest and newest.tries > job.tries else job

    def note(self, job: Job) -> None:
        """Take a further try."""
        self._newest[job.identity] = job

    def found(self, item: Manifest, job: Job) -> Job | None:
        """Return and note a further try of a job; None if an object is none.

        Args:
            item: The object that has the job's name now.
            job: The try that is known.
        """
        notes = get(item, "metadata", "annotations") or {}
        if notes.get(job_metadata.FIRST_UID) != job.identity or (
            str(item["metadata"]["uid"]) == job.uid  # a further try is still there
        ):
            return None
        again = replace(
            job,
            uid=str(item["metadata"]["uid"]),
            run=job_metadata.run(item),
            tries=int(notes.get(job_metadata.TRY, job.tries + 1)),
            first_uid=job.identity,
        )
        self.note(again)
        return again

    def creation(self, job: Job) -> LoopsLock:
        """Return the lock that is held while a try of a job is created."""
        return self._creations.setdefault(job.identity, LoopsLock())

    def is_stopped(self, job: Job) -> bool:
        """Return whether this process makes no further try of a job."""
        return job.identity in self._stopped

    async def stop(self, job: Job) -> None:
        """Make no further try of a job; return when none is being created."""
        self._stopped.add(job.identity)
        if lock := self._creations.get(job.identity):
            async with lock:
                pass
