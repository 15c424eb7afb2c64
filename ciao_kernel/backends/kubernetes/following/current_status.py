"""The current status of a followed job, from all that is known: its object, its pods, the events.

Reasons of waiting replicas come from :mod:`.pending_reasons`, those of jobs in queues from
:mod:`.queues`, the sentence about a job of which only a part has nodes from
:mod:`.partial_start`, and ends that the object does not
show from :mod:`.foreseen` and :mod:`.sidecars`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ciao_kernel.backends.kubernetes.following.replica_tracker import ReplicaTracker
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.states import foreseen, job_status, sidecars
from ciao_kernel.backends.kubernetes.states.partial_start import PartialStart
from ciao_kernel.backends.kubernetes.states.pending_reasons import PendingReasons
from ciao_kernel.backends.kubernetes.states.queues import QueueReasons
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.model import Job, Notice, State, Status

_TOGETHER = 0.3
"""Seconds from the end of the first failed replica in which others may fail with it: the cell shows
their lines before its error."""


class CurrentStatus:
    """Finds the status of one followed job.

    Args:
        client: The job's API server.
        job: The job.
        hopeless: Seconds after which an image that cannot be pulled fails the job.
        on_new_reason: Called when a replica waits for a new reason.
    """

    def __init__(
        self, client: Client, job: Job, hopeless: float, on_new_reason: Callable[[], None]
    ) -> None:
        self._job = job
        self._reasons = PendingReasons(client, job, hopeless, on_new_reason, client.clock.now)
        self._queue = QueueReasons(client, job, on_new_reason)
        self._partial = PartialStart()
        self._kept_pods = sidecars.KeptPods(job)
        self._notice: str | None = None
        self._failed_since = 0.0
        """Time at which the first failed replica was seen; 0 if none has failed."""

    async def close(self) -> None:
        """Stop reading events."""
        await self._reasons.close()
        await self._queue.close()

    def status(self, item: Object, members: ReplicaTracker, uid: str) -> Status:
        """Return the job's status.

        Args:
            item: The job's object.
            members: Its replicas.
            uid: Its uid.
        """
        pods = members.present()
        now = job_status.of_job(self._job, item, members.statuses())
        if queued := self._queue.explain(now, item, uid):
            return self._partial.look(queued, item)
        responded = bool(many(item, "status", "conditions")) or bool(
            get(item, "status", "startTime")  # of an Indexed Job
            or get(item, "status", "jobsStatus")  # of a TrainJob
        )
        created = str(get(item, "metadata", "creationTimestamp") or "")
        now = self._reasons.explain(now, pods, uid, operator_responded=responded, created=created)
        failed = any(one.state is State.FAILED for one in now.replicas)
        self._failed_since = (self._failed_since or time.monotonic()) if failed else 0.0
        kept = self._kept_pods.update(now, pods)
        self._notice = self._kept_pods.report(kept, pods) or self._notice
        if outcome := sidecars.outcome(item, now, kept, pods):
            state, decider = outcome
            since = next(one.since for one in now.replicas if one.replica == decider)
            return replace(now, state=state, since=since, decided_by=decider)
        return foreseen.failure(item, now, pods) or self._partial.look(now, item)

    def notice(self) -> Notice | None:
        """Return what the user should know beside the status, once."""
        text = self._queue.notice() or self._partial.notice()
        if text is None:
            text, self._notice = self._notice, None
        return Notice(text) if text else None

    def decided(self, now: Status) -> bool:
        """Return whether the cell of a failed job may end once the lines of ended replicas arrived.

        Args:
            now: The last result of :meth:`status`.
        """
        failed = [one.replica for one in now.replicas if one.state is State.FAILED]
        together = time.monotonic() - self._failed_since >= _TOGETHER
        return (
            now.state is State.FAILED and not now.hopeless and now.decided_by in failed and together
        )
