"""Kueue's own record of a job in a queue: its Workload, and why that waits.

The Workload itself says most, but reading it needs a right of its own. Without it the events are
read: an event of the job names its Workload, and the events of that say why it waits. They are
gone after an hour, and none is written for a queue that does not exist.

Sources: ``apis/kueue/v1beta2/workload_types.go``, ``pkg/controller/core/workload_controller.go``
and ``pkg/scheduler/flavorassigner`` of Kueue 0.15.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.rights import Right, allowed
from ciao_kernel.backends.kubernetes.states.event_texts import event_time
from ciao_kernel.errors import Refused
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.model import Job

GROUP = "kueue.x-k8s.io"
READ = tuple(Right(verb, "workloads", GROUP) for verb in ("get", "list"))
"""Optional rights: with them the reason is exact, and is known for a job that waits for long."""
_JOB_UID = f"{GROUP}/job-uid"
_CREATED = "CreatedWorkload"
_PARTS = re.compile(r"; (?=couldn't assign flavors to pod set )")
_TOO_LARGE = "maximum capacity"
_MAY_PASS = ("insufficient unused quota", "topology ")
"""Other nodes may be free later. How a topology is full may have a semicolon inside."""
_NO_QUEUE = "doesn't exist"
_QUOTA = "QuotaReserved"
_CHECK = "admission check "
"""Begin of a reason that is not Kueue's own: another controller has to agree to the start."""
_DEACTIVATED_FOR = "The workload is deactivated due to "
"""Begin of Kueue's message about a Workload that it has made inactive itself."""
_CUT = "..."
"""End of a message of an event of which Kueue left out the rest (``TruncateEventMessage``)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """State of a job's Workload, as far as it is known."""

    why: str = ""
    """Why the job waits, in all of Kueue's words; "" if nothing tells."""
    exists: bool | None = None
    """Whether the job has one; None: this user may not read it."""
    active: bool = True
    """False if it is made inactive (``ciao suspend``): then the job waits for no place."""
    given_up: bool = False
    """Whether Kueue itself made it inactive: ``why`` says why."""
    admitted: bool = False
    """Whether it was admitted before: the job may have run."""


class Workload:
    """Reads why a job waits.

    Args:
        client: The API server.
        job: The job.
    """

    def __init__(self, client: Client, job: Job) -> None:
        self._client, self._job = client, job
        self._name = ""

    async def is_readable(self) -> bool:
        """Return whether this user may read it.

        Raises:
            Refused, ClusterFault: From the client.
        """
        return all(await allowed(self._client, self._job.place, *READ))

    async def ask(self, uid: str) -> Answer:
        """Return why the job waits, and whether its queue is what it waits for.

        Args:
            uid: The job's uid.

        Raises:
            Refused, ClusterFault: From the client.
        """
        if not await self.is_readable():
            return Answer(await self._told_by_events(uid))
        item = await of_job(self._client, self._job.place, uid)
        if not item:
            return Answer(exists=False)
        active = get(item, "spec", "active") is not False
        given_up = "" if active else _given_up(item)
        why = given_up or condition(item) or await self._told_by_events(uid)
        admitted = any(one.get("type") == "Admitted" for one in many(item, "status", "conditions"))
        return Answer(why, exists=True, active=active, given_up=bool(given_up), admitted=admitted)

    async def _told_by_events(self, uid: str) -> str:
        if not self._name:
            self._name = name(await self._events(f"involvedObject.uid={uid}"))
        if not self._name:
            return ""
        by_name = f"involvedObject.name={self._name}"
        return newest(await self._events(f"involvedObject.kind=Workload,{by_name}"))

    async def _events(self, selector: str) -> list[Object]:
        path = f"/api/v1/namespaces/{self._job.place}/events"
        return many(await self._client.get(path, fieldSelector=selector), "items")


async def served_version(client: Client) -> str:
    """Return the version of Kueue's API that a cluster prefers; "" if it has no Kueue.

    Raises:
        Refused, ClusterFault: From the client.
    """
    try:
        found = await client.known(f"/apis/{GROUP}")
    except Refused as error:
        if error.code != 404:
            raise
        return ""
    return str(get(found, "preferredVersion", "version") or "")


async def of_job(client: Client, namespace: str, uid: str) -> Object:
    """Return the Workload of a job; ``{}`` if Kueue has made none.

    Args:
        client: The API server.
        namespace: The job's namespace.
        uid: The job's uid.

    Raises:
        Refused, ClusterFault: From the client.
    """
    path = f"/apis/{GROUP}/{await served_version(client)}/namespaces/{namespace}/workloads"
    found = await client.get(path, labelSelector=f"{_JOB_UID}={uid}")
    return next(iter(many(found, "items")), {})


def condition(item: Object) -> str:
    """Return why a Workload is not admitted: it has no place in its queue, or a check is not ready.

    Returns "" if it is admitted, or does not tell.
    """
    quota = [one for one in many(item, "status", "conditions") if one.get("type") == _QUOTA]
    if any(one.get("status") == "False" for one in quota):
        return _sentence(quota[0].get("message"))
    # Checks are listed before there is quota too, and nobody works at them then.
    for one in many(item, "status", "admissionChecks") if quota else ():
        if (state := one.get("state")) != "Ready":
            said = _sentence(one.get("message"))
            return f"{_CHECK}{one.get('name')}" + (f": {said}" if said else f" is {state}")
    return ""


def _given_up(item: Object) -> str:
    """Return why Kueue has made a Workload inactive; "" if somebody else did."""
    for one in many(item, "status", "conditions"):
        said = _sentence(one.get("message"))
        evicted = one.get("type") == "Evicted" and one.get("status") == "True"
        if evicted and said.startswith(_DEACTIVATED_FOR):
            return said
    return ""


def name(events: list[Object]) -> str:
    """Return the name of a job's Workload, by the job's events; "" if none tells."""
    told = [one for one in events if one.get("reason") == _CREATED]
    last = max(told, key=event_time, default={})
    return str(last.get("message", "")).rpartition("/")[2]


def newest(events: list[Object]) -> str:
    """Return why a Workload waits, by its own newest event; "" if none tells."""
    return _sentence(max(events, key=event_time, default={}).get("message"))


def waits_in_vain(why: str) -> bool:
    """Return whether a job with this reason waits until somebody changes the queue.

    A queue that is full now may have room later; one that is too small, or missing, never has.

    Args:
        why: The whole reason: what may pass comes last in it.
    """
    # One part for each role; a part names all kinds of nodes that were tried for it.
    parts = _PARTS.split(why)
    if why.endswith(_CUT) or why.startswith(_CHECK):
        return False
    return is_missing(why) or any(
        _TOO_LARGE in part and not any(one in part for one in _MAY_PASS) for part in parts
    )


def is_missing(why: str) -> bool:
    """Return whether a job waits for a queue that does not exist."""
    return why.startswith("LocalQueue ") and why.endswith(_NO_QUEUE)


def _sentence(message: object) -> str:
    text = " ".join(str(message or "").split())
    return text if text.endswith(_CUT) else text.rstrip(".")
