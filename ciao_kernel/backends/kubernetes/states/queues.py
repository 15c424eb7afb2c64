"""Jobs that wait in a queue of Kueue: what it says about them, and when it lets them run.

Kueue keeps a job suspended until its queue has room for all replicas. Why a job waits is read by
:mod:`.workloads`, and its place in the queue by :mod:`.queue_place`. Somebody may suspend it too,
by its Workload, or by its own field if Kueue does not manage its kind; and so may Kueue itself, as
after an admission check that was rejected.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from ciao_kernel.model.status import QUEUED, SUSPENDED
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
        certain: Seconds after which a queue that is too small counts as such: Kueue tries kinds of
            nodes in several rounds, and each round may name only the small ones.
        unmanaged: Seconds after which a job without a Workload counts as suspended by somebody:
            Kueue may be starting.
    """

    def __init__(
        self,
        client: Client,
        job: Job,
        on_new_reason: Callable[[], None],
        certain: float = 5.0,
        unmanaged: float = 60.0,
    ) -> None:
        self._client, self._job = client, job
        self._certain, self._unmanaged = certain, unmanaged
        self._in_vain_since = 0.0
        """When Kueue began to say that the queue is too small; 0 if it does not."""
        self._on_new_reason = on_new_reason
        self._asking: asyncio.Task[None] | None = None
        self._asked = 0.0
        self._denied = 0
        self._workload = workloads.Workload(client, job)
        self._place = QueuePlace(client, job, on_new_reason)
        self._now = client.clock.now
        self._told: workloads.Answer | None = None
        """The newest answer about this wait; None if there is none yet."""
        self._is_readable: bool | None = None
        """Whether the Workload may be read; None while that is not known."""
        self._since = 0.0
        """When the wait began; 0 while the job does not wait."""
        self._said = ""
        """The last sentence about this wait."""
        self._ran = False
        self._is_suspended = False
        self._was_inactive = False
        """Whether its Workload was inactive during this wait."""
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
            self._note_admission(now, queue_of(item))
            return None
        began = time.monotonic()
        self._since = self._since or began
        if self._denied < _DENIALS and began - self._asked > _ASK_EVERY:
            self._asked = began
            if self._asking is None or self._asking.done():
                self._asking = asyncio.ensure_future(self._ask(uid))
        if self._waits_for_nobody(began - self._since):
            return self._given_up(now, item) or self._suspended(now)
        if self._is_suspended:  # it is resumed, and waits anew
            self._is_suspended, self._since = False, began
        self._place.ask(queue_of(item), uid)
        text = words(item, self._reason, self._place.text)
        if self._is_certainly_in_vain() and not self._ran:
            return self._hopeless(now, item)
        self._report(text)
        return replace(now, message=text)

    @property
    def _reason(self) -> str:
        return self._told.why if self._told else ""

    def _note_admission(self, now: Status, queue: str) -> None:
        """Note that the job does not wait, and say so if it was told that it did."""
        if not now.state.over and (self._said or self._was_inactive):
            waited = span(time.monotonic() - self._since) if self._said else "it was resumed"
            self._notice = f"queue {queue} admitted {self._job.name} after {waited}."
        self._ran = self._ran or any(one.state is State.RUNNING for one in now.replicas)
        if self._ran and queue and self._is_readable is None and self._asking is None:
            self._asking = asyncio.ensure_future(self._ask_for_right())
        self._since, self._said, self._told = 0.0, "", None
        self._is_suspended = self._was_inactive = False
        self._place.forget()

    def _waits_for_nobody(self, waited: float) -> bool:
        """Return whether somebody has suspended the job: its queue will not let it run."""
        told = self._told
        if told is None or told.exists is None:
            return False
        return not told.active if told.exists else waited >= self._unmanaged

    def _hopeless(self, now: Status, item: Object) -> Status:
        """Return the failed status of a job that its queue will never let run."""
        why = short(self._reason, _LONGEST)
        message = f"{self._job.name} can never run in queue {queue_of(item)}: {why}"
        return replace(now, state=State.FAILED, since=self._now(), message=message, hopeless=True)

    def _given_up(self, now: Status, item: Object) -> Status | None:
        """Return the failed status of a job that Kueue has given up before its first run."""
        told = self._told
        began = self._ran or (told is not None and told.admitted)
        return self._hopeless(now, item) if told and told.given_up and not began else None

    def _suspended(self, now: Status) -> Status:
        """Return the status of a job that somebody, or Kueue, has suspended; say so, once."""
        told, until = self._told, f"until `ciao resume {self._job.reference}`"
        why = f": {short(self._reason, _LONGEST)}" if self._reason else ""
        by = " by Kueue" if told and told.given_up else ""
        if not self._is_suspended:
            self._is_suspended, self._said = True, ""
            self._place.forget()
            # A change of the job's own field is told as such, by whoever follows it.
            if told and told.exists:
                self._was_inactive = True
                pods = ", and its pods are deleted" if self._ran else ""
                because = why if by else ""
                self._notice = f"{self._job.name} is suspended{by}{pods} {until}{because}."
        return replace(now, reason=SUSPENDED, message=f"is suspended{by} {until}{why}")

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
        told = self._told
        if self._said:
            return
        if self._ran and told and told.exists is False:  # somebody has suspended it
            return
        lost = self._ran and not self._was_inactive
        # Else the Workload tells at once whether somebody has suspended it.
        certain = told is not None or self._is_readable is False
        if not (lost and certain) and time.monotonic() - self._since <= _SOON:
            return
        again = "has lost its place, and its pods are deleted; it " if lost else ""
        self._said, self._notice = text, f"{self._job.name} {again}{text}."

    async def _ask(self, uid: str) -> None:
        try:
            async with asyncio.timeout(_ASK_FOR):
                told = await self._workload.ask(uid)
        except Refused as error:
            self._denied += error.code == 403
            return
        except (ClusterFault, TimeoutError):
            return
        self._is_readable = told.exists is not None
        if told != self._told:
            self._told = told
            self._on_new_reason()

    async def _ask_for_right(self) -> None:
        """Ask while the job runs: if it loses its place, the cell says so at once."""
        with contextlib.suppress(Refused, ClusterFault, TimeoutError):
            async with asyncio.timeout(_ASK_FOR):
                self._is_readable = await self._workload.is_readable()
