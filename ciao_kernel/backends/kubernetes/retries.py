"""Starts a job again after the loss of a replica (``%retries``), and follows all its tries as one.

A kind of the training operator fails as a whole when a pod is evicted or deleted, whatever its
restart policy (training-operator 1.9, pkg/core/status.go). The follower then deletes the job and
creates it again from its own objects, with the next number in an annotation, so any follower can do
that, also one that comes when another was killed in between (:mod:`.next_try`). Several may do it
at once: each creates as a submission of its own, whose undo touches nothing of another, and a name
can be taken once; so one succeeds, and the others find its try. The Job controller
replaces pods that the cluster disrupts (``podFailurePolicy``); if other replicas fail for want of
them, the whole job is started again too.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ciao_kernel.backends.kubernetes import (
    apis,
    creation,
    job_metadata,
    next_objects,
    next_try,
    rights,
)
from ciao_kernel.backends.kubernetes.apis import JOB
from ciao_kernel.backends.kubernetes.deletion import Deletions
from ciao_kernel.backends.kubernetes.follow import follow
from ciao_kernel.backends.kubernetes.losses import Losses
from ciao_kernel.backends.kubernetes.manifest import Objects
from ciao_kernel.backends.kubernetes.next_try import NextTry
from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.backends.kubernetes.status import DELETED
from ciao_kernel.backends.kubernetes.target import Target
from ciao_kernel.background import start_background
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, Refused
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Event, Job, Manifest, Notice, State, Status
from ciao_kernel.plugins import Emit

_OTHERS = 10.0
"""Seconds for which another follower's next try is awaited, beyond the grace period of the pods."""
_ROUNDS = 5
"""Attempts to create a try whose names another follower takes; each waits for its try."""
_LOOK = 0.3
_LATE = 3.0
"""Seconds in which a follower that was told nothing creates a next try behind a deletion."""


class Retries:
    """The tries of jobs that this process follows.

    Args:
        deletions: Deletes the try that has failed.
    """

    def __init__(self, deletions: Deletions) -> None:
        self._deletions = deletions
        self._current: dict[str, Job] = {}
        """The newest try of a job by the uid of its first."""
        self._stopped: set[str] = set()
        self._creating: dict[str, asyncio.Lock] = {}

    def current(self, job: Job) -> Job:
        """Return the newest known try of a job."""
        newest = self._current.get(job.identity)
        return newest if newest and newest.tries > job.tries else job

    async def stop(
        self, target: Target, job: Job, path: str, stop_certain: Callable[[], None]
    ) -> None:
        """Prevent further tries of a job, also those of other followers, and delete the newest.

        Args:
            target: The job's cluster and namespace.
            job: Any of its tries.
            path: Path of its object.
            stop_certain: As for :meth:`.Deletions.remove`.

        Raises:
            BackendError: As :meth:`.Deletions.remove`, and :func:`.next_try.withdraw`.
        """
        first, client = job.identity, target.client
        self._stopped.add(first)
        if lock := self._creating.get(first):
            async with lock:
                pass
        job = self.current(job)
        if not job.retries:
            await self._deletions.remove(client, job, path, stop_certain)
            return
        try:
            record = await next_try.withdraw(client, job)
        except BackendError:
            await self._deletions.remove(client, job, path, stop_certain)
            raise
        known = record.before if record else None
        ours = await self._deletions.remove(client, job, path, stop_certain, known=known)
        last = ours or record or job.tries > job.retries
        until = time.monotonic() + (0.0 if last else _LATE)
        while True:
            item = await client.find(path)
            if item and (later := self._found(item, job)):
                job = later
                await self._deletions.remove(client, job, path, stop_certain)
            elif await next_try.withdraw(client, job) or time.monotonic() >= until:
                return
            else:
                await asyncio.sleep(_LOOK)

    async def follow(
        self,
        target: Target,
        job: Job,
        path: str,
        logs: Path,
        settings: Settings,
        *,
        since: float = 0.0,
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of a job and of its further tries, until the last one is settled.

        Args:
            target: The job's cluster and namespace.
            job: The job.
            path: Path of its object.
            logs: Folder for the log files.
            settings: Timeouts.
            since: Seconds since the epoch; older lines are left out.

        Raises:
            ClusterFault, Refused: As :func:`.follow.follow`; or a try could not be created.
        """
        notices: list[Event] = []
        if self._may_retry(job):
            resumed = self._resumed(target, job, path, settings, notices.append)
            found, error = await _outcome(resumed)
            for notice in notices:
                yield notice
            if error:
                raise error
            job = found or job
        while True:
            losses, failed, why = Losses(), None, ""
            events = follow(target.client, job, path, logs, settings, since=since, losses=losses)
            async with contextlib.aclosing(events):
                async for event in events:
                    if isinstance(event, Status):
                        event = _counted(event, job)
                        why = losses.excuse(event) if self._may_retry(job) else ""
                        if why and event.settled:
                            failed = event
                            break
                        event = _going_on(event) if why else event
                    yield event
            if failed is None:
                return
            yield Notice(f"{why}; {_again_words(job)}.")
            await asyncio.to_thread(_keep_logs, logs, job)
            notices = []
            again, error = await _outcome(self._again(target, job, path, settings, notices.append))
            for notice in notices:
                yield notice
            if error:
                raise error
            if again is None:
                yield replace(failed, state=State.STOPPED, message=DELETED)
                return
            job, since = again, 0.0

    def _may_retry(self, job: Job) -> bool:
        left = job.tries <= job.retries
        return left and bool(job.retries) and job.identity not in self._stopped

    async def _resumed(
        self, target: Target, job: Job, path: str, settings: Settings, emit: Emit
    ) -> Job:
        """Create the next try if only its record exists; return the try to follow."""
        item = await target.client.find(path)
        if item is not None:
            job = self._found(item, job) or job
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
        emit(Notice(f"{_again_words(job)}; who did that before has ended, or does it now."))
        return await self._recorded(target, job, path, record, settings, emit) or job

    async def _again(
        self, target: Target, job: Job, path: str, settings: Settings, emit: Emit
    ) -> Job | None:
        """Delete a failed try and create the next one; None if somebody else ended the job."""
        client = target.client
        grace = settings.grace(job.grace)
        item = await client.find(path)
        if item is None or get(item, "metadata", "deletionTimestamp"):
            if found := await self._others(client, job, path, grace):
                return found
            if record := await next_try.of_job(client, job):  # who wrote it was killed
                return await self._recorded(target, job, path, record, settings, emit)
            return None
        if (uid := str(item["metadata"]["uid"])) != (job.uid or uid):
            return self._found(item, job)
        beside = await next_objects.sources(target, item, job)
        made = next_objects.objects(item, beside, job, secrets.token_hex(8))
        job = replace(job, uid=uid)
        record, others = await next_try.write(target, made, job)
        if others and (found := await self._others(client, job, path, grace)):
            return found
        with _telling(job, emit if record else None):
            ours = await self._deletions.remove(
                client, job, path, lambda: None, first_only=not others
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
            async with self._creating.setdefault(job.identity, asyncio.Lock()):
                if job.identity in self._stopped:
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
                            told(Notice(_kept_words(job)))
                        raise
            # Another follower was faster; or it was killed before it could create the job.
            wait = 0.0 if record else settings.grace(job.grace)
            found = await self._others(client, job, path, wait)
            if found or record is None:
                return found
            await _clear(client, made, job)
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
        client, run = target.client, secrets.token_hex(8)
        try:
            created = await creation.create(target, next_objects.with_run(made, run), emit)
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
        self._current[job.identity] = again
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
            if foreign or job.identity in self._stopped or time.monotonic() > until:
                return None
            await asyncio.sleep(_LOOK)

    async def _seen(self, client: Client, item: Manifest, job: Job) -> Job | None:
        """Return the next try of a job if this is its object, and settle its record."""
        if found := self._found(item, job):
            # Who may not do that leaves it to others.
            with contextlib.suppress(Refused):
                await next_try.settle(client, found, item)
        return found

    def _found(self, item: Manifest, job: Job) -> Job | None:
        """Return the next try of a job that another follower has created; None if it is none."""
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
        self._current[job.identity] = again
        return again


class _Taken(BackendError):
    """An object of the next try exists already, or is gone at once."""


async def _outcome(
    work: Coroutine[Any, Any, Job | None],
) -> tuple[Job | None, BackendError | None]:
    """Return the try that some work creates, or its error: both follow what it has told.

    An interrupt of the cell or command does not end it: the job would stay deleted.
    """
    try:
        return await asyncio.shield(start_background(work)), None
    except BackendError as error:
        return None, error


@contextlib.contextmanager
def _telling(job: Job, emit: Emit | None) -> Iterator[None]:
    """Tell after an error that the record stays, and what a user can do."""
    try:
        yield
    except _Taken:
        raise
    except BackendError:
        if emit:
            emit(Notice(_kept_words(job)))
        raise


async def _clear(client: Client, made: Objects, job: Job) -> None:
    """Remove the sources that a killed follower left, of which no job exists; wait for their end.

    If that follower lives after all, it cannot claim them, and removes its job.
    """
    paths = [f"{job_metadata.collection(one)}/{one['metadata']['name']}" for one in made.beside]
    for path in paths:
        item = await client.find(path)
        labels = get(item, "metadata", "labels") or {}
        unowned = job_metadata.UNOWNED in labels and labels.get(job_metadata.JOB) == job.name
        if item and unowned and not get(item, "metadata", "ownerReferences"):
            await client.delete(path, uid=str(item["metadata"]["uid"]))
    until = time.monotonic() + _OTHERS
    while any([await client.find(path) for path in paths]) and time.monotonic() < until:
        await asyncio.sleep(_LOOK)


def resubmission_notice(job: Job) -> str:
    """Return who starts a job again, for the cell and for a dry run."""
    attach = f"`%ciao attach {job.name}` does that later"
    if apis.of_job(job) is JOB:
        return (
            "%retries: Kubernetes replaces pods that it disrupts; if other replicas fail because "
            f"of that, who follows the job starts it again. If nobody does, {attach}."
        )
    return (
        "%retries: who follows the job starts it again after the loss of a replica. If nobody "
        f"does, {attach}."
    )


def _again_words(job: Job) -> str:
    tries = f"try {job.tries + 1} of {job.retries + 1} (%retries={job.retries})"
    return f"{job.name} is started again, {tries}"


def _kept_words(job: Job) -> str:
    return (
        f"{job.name} could not be started again yet: `%ciao attach {job.reference}` tries again, "
        f"`%ciao delete {job.reference}` gives it up."
    )


def _counted(now: Status, job: Job) -> Status:
    """Return a status in which each replica counts the earlier tries of the job as restarts."""
    if job.tries == 1:
        return now
    replicas = (replace(one, restarts=one.restarts + job.tries - 1) for one in now.replicas)
    return replace(now, replicas=tuple(replicas), tries=job.tries)


def _going_on(now: Status) -> Status:
    """Return the status of a job that has failed, and that is started again."""
    return replace(
        now,
        state=State.RUNNING,
        reason="",
        message="",
        decided_by=None,
        foreseen=False,
        decided=False,
    )


def _keep_logs(folder: Path, job: Job) -> None:
    """Name the log files of a try after it, so that the next one has files of its own.

    Other files there came back from the program (``%output``).
    """
    for replica in job.replicas:
        with contextlib.suppress(OSError):
            path = folder / f"{replica}.log"
            kept = path.with_suffix(f".try-{job.tries}.log")
            # Another follower may have done it, and write the files of the next try already.
            if path.exists() and not kept.exists():
                path.replace(kept)
