"""Follows all tries of a job as one (``%retries``), which starts again after the loss of a replica.

A kind of the training operator fails as a whole when a pod is evicted or deleted, whatever its
restart policy (training-operator 1.9, pkg/core/status.go). The follower then makes the next try
(:mod:`.resubmission`). The Job controller replaces pods that the cluster disrupts
(``podFailurePolicy``); if other replicas fail for want of them, the whole job is started again too.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.following.losses import Losses
from ciao_kernel.backends.kubernetes.lifecycle import next_try, retry_notices
from ciao_kernel.backends.kubernetes.lifecycle.deletion import Deletions
from ciao_kernel.backends.kubernetes.lifecycle.known_tries import KnownTries
from ciao_kernel.backends.kubernetes.states.status import DELETED
from ciao_kernel.background import start_background
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, ClusterFault, Refused
from ciao_kernel.kube.responses import DENIED as _DENIED
from ciao_kernel.model import Event, Job, Notice, State, Status
from ciao_kernel.plugins import Emit

if TYPE_CHECKING:
    from ciao_kernel.backends.kubernetes.lifecycle.resubmission import Resubmission

_LOOK = 0.3
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 10.0
"""Seconds between two attempts to make a next try; each bears ``requestPatience`` by itself."""
_LATE = 3.0
"""Seconds in which a follower that was told nothing creates a next try behind a deletion."""


class Retries:
    """The tries of jobs that this process follows.

    Args:
        deletions: Deletes the try that has failed.
    """

    def __init__(self, deletions: Deletions) -> None:
        self._deletions = deletions
        self._tries = KnownTries()

    @cached_property
    def _resubmission(self) -> Resubmission:
        # Late: rarely needed.
        from ciao_kernel.backends.kubernetes.lifecycle.resubmission import Resubmission

        return Resubmission(self._deletions, self._tries)

    def current(self, job: Job) -> Job:
        """Return the newest known try of a job."""
        return self._tries.newest(job)

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
        client = target.client
        await self._tries.stop(job)
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
            if item and (later := self._tries.found(item, job)):
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
        # Late: `ciao logs` follows nothing.
        from ciao_kernel.backends.kubernetes.following.follow import follow
        from ciao_kernel.delivery.output import result_tries

        notices: list[Event] = []
        if self._may_retry(job):
            resumed = start_background(
                self._resubmission.resumed(target, job, path, settings, notices.append)
            )
            async for notice in _told(resumed, notices):
                yield notice
            job = resumed.result()
        while True:
            losses, failed, why = Losses(), None, ""
            await asyncio.to_thread(result_tries.begin, job, logs)
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
            yield Notice(f"{why}; {retry_notices.again(job)}.")
            await asyncio.to_thread(_keep_logs, logs, job)
            again = start_background(self._again(target, job, path, settings, notices.append))
            async for notice in _told(again, notices):
                yield notice
            if (found := again.result()) is None:
                yield replace(failed, state=State.STOPPED, message=DELETED)
                return
            job, since = found, 0.0

    async def _again(
        self, target: Target, job: Job, path: str, settings: Settings, emit: Emit
    ) -> Job | None:
        """Make the next try, over faults that following survives too; None if the job was ended.

        An upgrade of a cluster drains its nodes and takes its API server away at the same time.

        Args:
            target: The job's cluster and namespace.
            job: The failed try.
            path: Path of its object.
            settings: Timeouts.
            emit: Receives notices for the user.

        Raises:
            BackendError: As :meth:`.Resubmission.again`; faults that pass, after their time only.
        """
        with self._resubmission.begun.making(job):
            return await self._repeated(target, job, path, settings, emit)

    async def _repeated(
        self, target: Target, job: Job, path: str, settings: Settings, emit: Emit
    ) -> Job | None:
        until, denied, pause = 0.0, 0.0, _FIRST_PAUSE
        while not self._tries.is_stopped(job):
            notices: list[Event] = []
            try:
                found = await self._resubmission.again(target, job, path, settings, notices.append)
            except BackendError as error:
                now, first = time.monotonic(), not until
                until = until or now + settings.follow_patience
                denied = (denied or now) if _is_denied(error) else 0.0
                passes = now - denied < _DENIED if denied else _passes(error)
                if not passes or now >= until:
                    _emit_all(notices, emit)
                    raise
                if first:  # the notices of this attempt are about its end
                    limit = _DENIED if denied else None
                    words = retry_notices.delayed(job, error.message, settings, limit)
                    emit(Notice(words))
            else:
                _emit_all(notices, emit)
                return found
            over, pause = time.monotonic() + pause, min(_LAST_PAUSE, pause * 2)
            while time.monotonic() < over and not self._tries.is_stopped(job):
                await asyncio.sleep(_LOOK)
        return None

    def _may_retry(self, job: Job) -> bool:
        return job.tries <= job.retries and not self._tries.is_stopped(job)


async def _told(work: asyncio.Task[Any], notices: list[Event]) -> AsyncGenerator[Event, None]:
    """Yield what work in the background tells until it ends; its result or error comes after that.

    An interrupt of the cell or command does not end it: the job would stay deleted.
    """
    while True:
        await asyncio.wait({work}, timeout=_LOOK)
        over = work.done()
        while notices:
            yield notices.pop(0)
        if over:
            return


def _emit_all(notices: list[Event], emit: Emit) -> None:
    for notice in notices:
        emit(notice)


def _passes(error: BackendError) -> bool:
    """Return whether a fault may pass while the cluster is upgraded, or the user signs in again."""
    if isinstance(error, Refused):
        return error.code in (401, 429) or error.code >= 500
    return isinstance(error, ClusterFault)


def _is_denied(error: BackendError) -> bool:
    return isinstance(error, Refused) and error.code == 403


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
