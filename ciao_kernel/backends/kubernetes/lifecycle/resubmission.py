"""Makes the next try of a job from its own objects (``%retries``), at once with other followers.

The failed try is deleted, and created again with the next number in an annotation, so any follower
can do that, also one that comes when another was killed in between (:mod:`.next_try`). Several may
do it at once: each creates as a submission of its own, whose undo touches nothing of another, and a
name can be taken once; so one succeeds, and the others find its try.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from ciao_kernel.backends.kubernetes import rights
from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.lifecycle import (
    creation,
    next_objects,
    next_try,
    retry_notices,
)
from ciao_kernel.backends.kubernetes.lifecycle.begun_tries import BegunTries
from ciao_kernel.backends.kubernetes.lifecycle.deletion import Deletions
from ciao_kernel.backends.kubernetes.lifecycle.known_tries import KnownTries
from ciao_kernel.backends.kubernetes.lifecycle.try_record import NextTry
from ciao_kernel.backends.kubernetes.lifecycle.unfinished import clear_sources
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, Refused
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Manifest, Notice
from ciao_kernel.plugins import Emit

_OTHERS = 10.0
"""Seconds for which another follower's next try is awaited, beyond the grace period of the pods."""
_ROUNDS = 5
"""Attempts to create a try whose names another follower takes; each waits for its try."""
_LOOK = 0.3


class Resubmission:
    """Makes next tries.

    Args:
        deletions: Deletes the try that has failed.
        tries: Notes the new one.
    """

    def __init__(self, deletions: Deletions, tries: KnownTries) -> None:
        self._deletions, self._tries = deletions, tries
        self.begun = BegunTries()
        """Callers of :meth:`again` hold ``begun.making(job)`` over all attempts."""

    async def resumed(
        self, target: Target, job: Job, path: str, settings: Settings, emit: Emit
    ) -> Job:
        """Create the next try if only its record exists; return the try to follow.

        Args:
            target: The job's cluster and namespace.
            job: Any of its tries.
            path: Path of its object.
            settings: Grace period of the pods.
            emit: Receives notices for the user.

        Raises:
            BackendError: The try could not be created.
        """
        item = await target.client.find(path)
        if item is not None:
            job = self._tries.found(item, job) or job
            if job.tries > 1:
                await next_try.settle(target.client, job, item)
            return job
        record = await next_try.find(target.client, job.place, job.name)
        if record is None or record.first_uid != job.identity:
            return job
        last = record.last  # a later try perhaps than the one that is known here
        job = replace(
            job,
            uid=str(last["metadata"]["uid"]),
            run=job_metadata.run(last),
            tries=record.number - 1,
            first_uid=record.first_uid,
        )
        emit(Notice(f"{retry_notices.again(job)}; who did that before has ended, or does it now."))
        with self.begun.making(job):
            found = await self._recorded(target, job, path, record, settings, emit)
            self.begun.forget(job)
        return found or job

    async def again(
        self, target: Target, job: Job, path: str, settings: Settings, emit: Emit
    ) -> Job | None:
        """Delete a failed try and create the next one; None if somebody else ended the job.

        Called again after an error of the API server it goes on where it was: see :attr:`begun`.

        Args:
            target: The job's cluster and namespace.
            job: The failed try.
            path: Path of its object.
            settings: Grace period of the pods.
            emit: Receives notices for the user.

        Raises:
            BackendError: The next try could not be created.
        """
        found = await self._again(target, job, path, settings, emit)
        self.begun.forget(job)
        return found

    async def _again(
        self, target: Target, job: Job, path: str, settings: Settings, emit: Emit
    ) -> Job | None:
        client, begun = target.client, self.begun.of(job)
        grace = settings.grace(job.grace)
        with _telling(job, emit if begun.recorded else None):
            item = await begun.find(client, self._deletions, job, path)
            record = await next_try.of_job(client, job) if begun.deleted else None
        if item is None or get(item, "metadata", "deletionTimestamp"):
            if record is None and begun.unrecorded:
                made, last = begun.unrecorded
                await self._deletions.remove(client, job, path, lambda: None, known=last)
                return await self._create(target, job, path, made, None, settings, emit)
            if record is None:
                if found := await self._others(client, job, path, grace):
                    return found
                record = await next_try.of_job(client, job)
            if record:  # who wrote it was killed, or it is ours
                return await self._recorded(target, job, path, record, settings, emit)
            return None
        if (uid := str(item["metadata"]["uid"])) != (job.uid or uid):
            return await self._seen(client, item, job)
        sources = await next_objects.sources_of(target, item, job)
        made = next_objects.objects(item, sources, job, secrets.token_hex(8))
        job = replace(job, uid=uid)
        record, others = await next_try.write(target, made, job)
        if record and not others:
            begun.record = record.uid
        foreign = others and record and record.uid != begun.record
        if foreign and (found := await self._others(client, job, path, grace)):
            return found
        deleted = partial(begun.note_deletion, made, item, recorded=record is not None)
        with _telling(job, emit if record else None):
            ours = await self._deletions.remove(
                client, job, path, deleted, first_only=not others, uncertain=deleted
            )
        if not ours and not others:
            # Somebody else was faster: to start it again, or to end it with the record.
            if found := await self._others(client, job, path, grace):
                return found
            if record is None:
                return None
        return await self._create(target, job, path, made, record, settings, emit)

    async def _recorded(
        self, target: Target, job: Job, path: str, record: NextTry, settings: Settings, emit: Emit
    ) -> Job | None:
        """Create the next try from a record of another follower.

        Raises:
            BackendError: This user could not settle the record; or as :meth:`_create`.
        """
        if not all(await rights.allowed(target.client, job.place, *rights.CLAIM)):
            raise BackendError(
                f"{job.name} can be started again only by a user who may patch and delete "
                "configmaps.",
                f"`%ciao delete {job.reference}` of such a user gives it up.",
            )
        return await self._create(target, job, path, record.made, record, settings, emit)

    async def _create(
        self,
        target: Target,
        job: Job,
        path: str,
        made: Objects,
        record: NextTry | None,
        settings: Settings,
        emit: Emit,
    ) -> Job | None:
        """Create the next try when the last one is gone; None if somebody else ended the job."""
        client, told = target.client, emit if record else None
        if record:  # it may be another kernel's, which was killed while the pods ended
            with _telling(job, told):
                await self._deletions.remove(client, job, path, lambda: None, known=record.before)
        for left in reversed(range(_ROUNDS)):
            async with self._tries.creation(job):
                if self._tries.is_stopped(job):
                    await next_try.withdraw(client, job)
                    return None
                waits = record is None or await next_try.of_job(client, job)
                # Its creator, or who saw it, has settled the record.
                item = await client.find(path) if record else None
                if item and (found := await self._seen(client, item, job)):
                    return found
                if item or not waits:
                    return None
                try:
                    with _telling(job, told):
                        return await self._created(target, job, path, made, record, emit)
                except _Taken:
                    if not left:
                        if told:
                            told(Notice(retry_notices.kept(job)))
                        raise
            # Another follower was faster; or it was killed before it could create the job.
            wait = 0.0 if record else settings.grace(job.grace)
            found = await self._others(client, job, path, wait)
            if found or record is None:
                return found
            await clear_sources(client, made, job, _OTHERS)
        return None

    async def _created(
        self,
        target: Target,
        job: Job,
        path: str,
        made: Objects,
        record: NextTry | None,
        emit: Emit,
    ) -> Job | None:
        """Create the next try now; None if somebody has deleted the job meanwhile.

        Raises:
            _Taken: Another follower has an object of that name, or has removed one of these.
            BackendError: From the creation.
        """
        client, run, begun = target.client, secrets.token_hex(8), self.begun.of(job)
        try:
            with begun.submitting(run):
                created = await creation.create(
                    target, next_objects.with_run(made, run), emit, begun.removals.add
                )
        except Refused as error:
            if error.reason == "AlreadyExists" or (record and error.code in (404, 409)):
                raise _Taken(error.message, error.hint) from error
            raise
        again = replace(
            job,
            uid=str(created["metadata"]["uid"]),
            run=run,
            tries=job.tries + 1,
            first_uid=job.identity,
            created=time.time(),
        )
        item = {"apiVersion": made.job["apiVersion"], "kind": made.job["kind"], **created}
        if record and not await next_try.settle(client, again, item):
            await self._deletions.remove(client, again, path, lambda: None)
            return None  # deleted meanwhile, by somebody who saw only the record
        self._tries.note(again)
        return again

    async def _others(self, client: Client, job: Job, path: str, grace: float) -> Job | None:
        """Return the next try that another follower makes; None if somebody ended the job.

        The other one deletes the failed try first, which takes as long as its pods need to end.
        """
        until = time.monotonic() + grace + _OTHERS
        while True:
            item = await client.find(path)
            if item and (found := await self._seen(client, item, job)):
                return found
            foreign = item and str(item["metadata"]["uid"]) != job.uid
            if foreign or self._tries.is_stopped(job) or time.monotonic() > until:
                return None
            await asyncio.sleep(_LOOK)

    async def _seen(self, client: Client, item: Manifest, job: Job) -> Job | None:
        """Return the next try of a job if this is its object, and settle its record."""
        if found := self._tries.found(item, job):
            # Who may not do that leaves it to others.
            with contextlib.suppress(Refused):
                await next_try.settle(client, found, item)
        return found


class _Taken(BackendError):
    """An object of the next try exists already, or is gone at once."""


@contextlib.contextmanager
def _telling(job: Job, emit: Emit | None) -> Iterator[None]:
    """Tell after an error that the record stays, and what a user can do."""
    try:
        yield
    except _Taken:
        raise
    except BackendError:
        if emit:
            emit(Notice(retry_notices.kept(job)))
        raise
