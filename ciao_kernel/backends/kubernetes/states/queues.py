"""Jobs that wait in a queue of Kueue: what it says about them, and when it lets them run.

Kueue keeps a job suspended until its queue has room for all replicas. Why a job waits is read by
:mod:`.workloads`, and its place in the queue by :mod:`.queue_place`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.backends.kubernetes.states import workloads
from ciao_kernel.backends.kubernetes.states.queue_place import QueuePlace
from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.model import Job, State, Status
from ciao_kernel.model.status import QUEUED
from ciao_kernel.model.times import span
from ciao_kernel.visible_text import short

MANAGER = "kueue"
"""Kueue's name as a writer of objects."""
LABEL = "kueue.x-k8s.io/queue-name"
"""Label of a job with its queue's name: the user's, or Kueue's for the namespace's default."""
_ASK_EVERY, _ASK_FOR = 1.0, 2.0
_SOON = 3.0
"""Seconds in which most jobs are admitted: of a shorter wait the cell says nothing."""
_LONGEST = 300
_DENIALS = 3
"""Refusals after which requests end: a single refusal may come from a server that just started."""


def queue_of(item: Object) -> str:
    """Return the name of the queue that a job's object belongs to; "" if none."""
    return str(get(item, "metadata", "labels", LABEL) or "")


def waits(item: Object) -> bool:
    """Return whether a job waits in a queue."""
    return bool(queue_of(item)) and apis.is_suspended(item)


def words(item: Object, why: str = "", place: str = "") -> str:
    """Return what is said of a job that waits, with its place and the reason if they are known."""
    where = f"waits in queue {queue_of(item)}" + (f", {place}" if place else "")
    return where + (f": {short(why, _LONGEST)}" if why else "")


class QueueReasons:
    """Finds why a job waits in its queue, and where.

    Args:
        client: The API server.
        job: The job.
        on_new_reason: Called when there is a new reason or place.
        certain: Seconds after which a queue that is too small counts as such. Kueue tries kinds of
            nodes in several rounds, and each round may name only the small ones.
    """

    def __init__(
        self,
        client: Client,
        job: Job,
        on_new_reason: Callable[[], None],
        certain: float = 5.0,
    ) -> None:
        self._client, self._job, self._certain = client, job, certain
        self._in_vain_since = 0.0
        """When Kueue began to say that the queue is too small; 0 if it does not."""
        self._on_new_reason = on_new_reason
        self._asking: asyncio.Task[None] | None = None
        self._asked = 0.0
        self._denied = 0
        self._workload = workloads.Workload(client, job)
        self._place = QueuePlace(client, job, on_new_reason)
        self._now = client.clock.now
        self._reason = ""
        self._since = 0.0
        """When the wait began; 0 while the job does not wait."""
        self._said = ""
        """The last sentence about this wait."""
        self._ran = False
        self._notice: str | None = None

    async def close(self) -> None:
        """Stop reading events and places."""
        await self._place.close()
        if self._asking:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def explain(self, now: Status, item: Object, uid: str) -> Status | None:
        """Return the status of a job that waits in a queue; None for any other job.

        Args:
            now: The status without the reason.
            item: The job's object.
            uid: Its uid.
        """
        if now.reason != QUEUED:
            if self._said and not now.state.over:
                waited = span(time.monotonic() - self._since)
                self._notice = f"queue {queue_of(item)} admitted {self._job.name} after {waited}."
            self._ran = self._ran or any(one.state is State.RUNNING for one in now.replicas)
            self._since, self._said, self._reason = 0.0, "", ""
            self._place.forget()
            return None
        began = time.monotonic()
        self._since = self._since or began
        if self._denied < _DENIALS and began - self._asked > _ASK_EVERY:
            self._asked = began
            if self._asking is None or self._asking.done():
                self._asking = asyncio.ensure_future(self._ask(uid))
        self._place.ask(queue_of(item), uid)
        text = words(item, self._reason, self._place.text)
        if self._is_certainly_in_vain() and not self._ran:
            why = short(self._reason, _LONGEST)
            message = f"{self._job.name} can never run in queue {queue_of(item)}: {why}"
            return replace(
                now, state=State.FAILED, since=self._now(), message=message, hopeless=True
            )
        self._report(text)
        return replace(now, message=text)

    def _is_certainly_in_vain(self) -> bool:
        if not workloads.waits_in_vain(self._reason):
            self._in_vain_since = 0.0
            return False
        self._in_vain_since = self._in_vain_since or time.monotonic()
        waited = time.monotonic() - self._in_vain_since
        return workloads.is_missing(self._reason) or waited >= self._certain

    def notice(self) -> str | None:
        """Return what the user should know beside the status, once."""
        text, self._notice = self._notice, None
        return text

    def _report(self, text: str) -> None:
        """Say that the job waits: at once if it ran before, else if it waits longer than most."""
        if self._said or not (self._ran or time.monotonic() - self._since > _SOON):
            return
        again = "has lost its place, and its pods are deleted; it " if self._ran else ""
        self._said, self._notice = text, f"{self._job.name} {again}{text}."

    async def _ask(self, uid: str) -> None:
        try:
            async with asyncio.timeout(_ASK_FOR):
                told = await self._workload.why(uid)
        except Refused as error:
            self._denied += error.code == 403
            return
        except (ClusterFault, TimeoutError):
            return
        if told != self._reason:
            self._reason = told
            self._on_new_reason()
