"""Reasons why a job waits, in the cluster's words, and the end of hopeless waits.

Events are requested in the background: a slow answer must not delay the lines.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.object_fields import many
from ciao_kernel.backends.kubernetes.states import status
from ciao_kernel.backends.kubernetes.states.event_texts import (
    event_time,
    newest,
    pulling,
    sentence,
)
from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.model import Job, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.status import POD_SECURITY

_ASK_EVERY, _ASK_FOR = 1.0, 2.0
_ASK_PARENTS_EVERY = 5.0
"""Seconds between two rounds that ask also about the objects between a job and its pods: a job may
wait for hours, and they are several."""
_MOST_PODS = 4
_OPERATOR_SILENT = 10.0
_UNMOUNTED, _MOUNT_AGAIN = "FailedMount", 5.0
"""Reason of a volume that is missing, and the seconds until it is shown: a ConfigMap that was made
just after its pod is there when the node tries again."""
_TO_SECONDS = len("2026-01-01T00:00:00")
"""Characters by which times are compared: only some of them have fractions of a second."""
_DENIALS = 3
"""Refusals after which requests end: a single refusal may come from a server that just started."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """An object whose events are read.

    Args:
        events: Field selector of its events.
        pod: Whether it is a pod.
        since: Creation of the job, for objects that are known by name: events outlive their object,
            and older ones are those of an earlier job. Other events are not judged by their time,
            because clocks of nodes differ.
    """

    events: str
    pod: bool = False
    since: str = ""


class PendingReasons:
    """Finds reasons that are missing in the pods' status: from events, read once a second.

    Args:
        client: The API server.
        job: The job of the waiting replicas.
        hopeless: Seconds after which an image that cannot be pulled fails the job.
        on_new_reason: Called when there is a new reason.
        now: The cluster's clock, in seconds since the epoch.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        client: Client,
        job: Job,
        hopeless: float,
        on_new_reason: Callable[[], None],
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now, self._clock = now, clock
        self._client, self._job, self._hopeless = client, job, hopeless
        self._on_new_reason = on_new_reason
        self._asking: asyncio.Task[None] | None = None
        self._asked = self._parents_asked = 0.0
        self._began = time.monotonic()
        self._parents: dict[str, list[str]] = {}
        """Field selectors of the events of what creates the pods of a role."""
        self._told: dict[str, str] = {}
        """Last text from the events of an object, by their field selector."""
        self._pulls: dict[str, str] = {}
        """Image that a node pulls for a pod, and the time so far, by the same."""
        self._unmounted: dict[str, float] = {}
        """Time since when a pod lacks a volume, by the same."""
        self._stuck: dict[Replica, float] = {}
        self._uid = ""
        """The job's uid."""
        self._refused_since = 0.0
        """Time since when the controller reports that it cannot create the pods."""
        self._ran = False
        self._operator_responded = False
        self._denied = 0

    async def close(self) -> None:
        """Stop reading events."""
        if self._asking:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def explain(
        self,
        now: Status,
        pods: Mapping[Replica, Object | None],
        uid: str,
        *,
        operator_responded: bool = True,
        created: str = "",
    ) -> Status:
        """Return the status with the known reasons of pending replicas.

        Args:
            now: The status.
            pods: Each replica's pod, if it has one.
            uid: The job's uid.
            operator_responded: Whether the controller has taken note of the job.
            created: The job's creation, as the server writes it.
        """
        self._uid = uid
        self._operator_responded = self._operator_responded or operator_responded
        pending = [one for one in now.replicas if one.state is State.PENDING]
        self._ran = self._ran or len(pending) < len(now.replicas)
        if now.state.over or not pending:
            self._stuck.clear()
            return now
        if self._denied < _DENIALS and time.monotonic() - self._asked > _ASK_EVERY:
            self._asked = time.monotonic()
            if self._asking is None or self._asking.done():
                asked = _objects_to_query(pending, pods, uid)
                if self._asked - self._parents_asked > _ASK_PARENTS_EVERY:
                    self._parents_asked = self._asked
                    asked += self._parents_to_query(pending, pods, created)
                self._asking = asyncio.ensure_future(self._ask(asked))
        of_job = _of_uid(uid)
        explained = {one.replica: self._reason(one, pods[one.replica], of_job) for one in pending}
        # Most stay as they are, and this happens up to 20 times a second.
        replicas = tuple(
            replace(one, reason=reason)
            if (reason := explained.get(one.replica, one.reason)) != one.reason
            else one
            for one in now.replicas
        )
        found = replace(now, replicas=replicas)
        return self._failed_status(found, pods) or found

    async def _ask(self, asked: list[_Asked]) -> None:
        """Read the events of each of these objects."""
        path = f"/api/v1/namespaces/{self._job.place}/events"
        for one in asked:
            try:
                async with asyncio.timeout(_ASK_FOR):
                    found = await self._client.get(path, fieldSelector=one.events)
            except Refused as error:
                self._denied += error.code == 403
                return
            except (ClusterFault, TimeoutError):
                return
            events = [
                event
                for event in many(found, "items")
                if event_time(event)[:_TO_SECONDS] >= one.since[:_TO_SECONDS]
            ]
            told = self._lasting(one.events, sentence(newest(events, of_job=not one.pod)))
            pull = pulling(events, self._now())
            if (self._told.get(one.events, ""), self._pulls.get(one.events, "")) != (told, pull):
                self._told[one.events], self._pulls[one.events] = told, pull
                self._on_new_reason()

    def _lasting(self, events: str, told: str) -> str:
        """Return the text of an object's events: the last one while its fault may soon be over."""
        if told.partition(":")[0] != _UNMOUNTED:
            self._unmounted.pop(events, None)
            return told
        since = self._unmounted.setdefault(events, self._clock())
        return told if self._clock() - since >= _MOUNT_AGAIN else self._told.get(events, "")

    def _reason(self, one: ReplicaStatus, pod: Object | None, of_job: str) -> str:
        if pod is not None:
            events = _of_uid(pod["metadata"]["uid"])
            said = self._told.get(events, "")
            if not said and not one.reason:
                return self._pulls.get(events, "")
            if one.reason.startswith("unschedulable") or not said:
                return one.reason
            if one.node and said.startswith("FailedScheduling"):
                return one.reason  # the pod was scheduled since then
            # The events contain the image's error; the status soon contains only "Back-off".
            return said if not one.reason or "Back-off" in one.reason else one.reason
        for events in (*self._of_parents(one.replica.role), of_job):
            if self._told.get(events):
                return self._told[events]
        if not self._operator_responded and time.monotonic() - self._began > _OPERATOR_SILENT:
            return f"no pod yet: {apis.of_job(self._job).controller} does not answer"
        return one.reason

    def _parents_to_query(
        self, pending: list[ReplicaStatus], pods: Mapping[Replica, Object | None], created: str
    ) -> list[_Asked]:
        """Return the objects between a job and the pods that it does not have yet."""
        roles = dict.fromkeys(one.replica.role for one in pending if not pods[one.replica])
        parents = dict.fromkeys(events for role in roles for events in self._of_parents(role))
        return [_Asked(events, since=created) for events in parents]

    def _of_parents(self, role: str) -> list[str]:
        """Return the field selectors of the events of what creates the pods of a role.

        By name: the uids are in objects that this user may not be allowed to read.
        """
        if role not in self._parents:
            self._parents[role] = [
                f"involvedObject.kind={kind},involvedObject.name={name}"
                for kind, name in apis.of_job(self._job).parents(self._job.name, role)
            ]
        return self._parents[role]

    def _failed_status(self, now: Status, pods: Mapping[Replica, Object | None]) -> Status | None:
        """Return the failed status of a job that will never run, if it has waited long enough.

        A replica that is restarted while others train is not given up: the registry may come
        back, and the training would be lost.
        """
        if self._ran:
            return None
        if lost := self._given_up(now, pods):
            return lost
        for one in now.replicas:
            pod = pods.get(one.replica)
            word = status.waiting_reason(pod)[0] if pod and one.state is State.PENDING else ""
            if word not in status.HOPELESS:
                self._stuck.pop(one.replica, None)
                continue
            since = self._stuck.setdefault(one.replica, time.monotonic())
            if time.monotonic() - since >= self._hopeless:
                return replace(
                    now,
                    state=State.FAILED,
                    since=self._now(),
                    reason=word,
                    message=f"{one.replica} cannot start: {one.reason}",
                    decided_by=one.replica,
                    hopeless=True,
                )
        return None

    def _given_up(self, now: Status, pods: Mapping[Replica, Object | None]) -> Status | None:
        """Return the failed status of a job for which its controller can create no pods."""
        told = "" if any(pods.values()) else self._told.get(_of_uid(self._uid), "")
        if told.partition(":")[0] not in apis.of_job(self._job).hopeless:
            # What creates the pods of a role may say so, not the job.
            by_role = [] if any(pods.values()) else [one.reason for one in now.replicas]
            told = next((one for one in by_role if POD_SECURITY in one), "")
        if not told:
            self._refused_since = 0.0
            return None
        self._refused_since = self._refused_since or time.monotonic()
        if time.monotonic() - self._refused_since < self._hopeless:
            return None
        message = f"{apis.of_job(self._job).controller} cannot create its pods: {told}"
        reason, since = told.partition(":")[0], self._now()
        return replace(
            now, state=State.FAILED, since=since, reason=reason, message=message, hopeless=True
        )


def _objects_to_query(
    pending: list[ReplicaStatus], pods: Mapping[Replica, Object | None], uid: str
) -> list[_Asked]:
    """Return the objects whose events to read: a few pods, because all wait for the same."""
    waiting = [pod for one in pending if (pod := pods[one.replica])]
    own = [_Asked(_of_uid(uid))] if uid and len(waiting) < len(pending) else []
    found = (_Asked(_of_uid(pod["metadata"]["uid"]), pod=True) for pod in waiting[:_MOST_PODS])
    return [*own, *found]


def _of_uid(uid: str) -> str:
    """Return the field selector of the events of an object."""
    return f"involvedObject.uid={uid}"
