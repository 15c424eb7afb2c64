"""Containers beside the program that keep its pod alive after the program's end.

A pod ends with the last of its containers, and a job's controller sees the end of pods only. A
service mesh adds such a container to pods, for example Istio (``istio-proxy``). A native sidecar
(an init container with ``restartPolicy: Always``) does not keep its pod alive.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.states import foreseen
from ciao_kernel.model import Job, Manifest, Replica, ReplicaStatus, State, Status

PATIENCE = 5.0
"""Seconds that other containers may take to end after the program."""


class KeptPods:
    """The pods of one followed job that are alive although their programs have ended.

    Args:
        job: The job.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._since: dict[Replica, float] = {}
        self._reported = False

    def update(self, now: Status, pods: Mapping[Replica, Manifest | None]) -> frozenset[Replica]:
        """Return the replicas that have ended and whose pods do not end.

        Args:
            now: The job's status.
            pods: Each replica's pod, if it has one.
        """
        alive = {
            one.replica
            for one in now.replicas
            if one.state.over and (pod := pods.get(one.replica)) and keepers(pod)
        }
        self._since = {one: self._since.get(one, time.monotonic()) for one in alive}
        return frozenset(one for one in alive if time.monotonic() - self._since[one] >= PATIENCE)

    def report(
        self, kept: Collection[Replica], pods: Mapping[Replica, Manifest | None]
    ) -> str | None:
        """Return a sentence about the containers that keep pods alive, once in a job's life.

        Args:
            kept: The result of :meth:`update`.
            pods: Each replica's pod.
        """
        if self._reported or not kept:
            return None
        self._reported = True
        first = min(kept)
        name = keepers(pods[first] or {})[0]
        return (
            f"{first} has ended, but its pod stays alive because its container {name} does not "
            f"end: the cluster does not notice the end of {self._job.name}. `%ciao delete "
            f"{self._job.reference}` removes the pods. To prevent this, switch off what adds "
            f"{name} to pods (for Istio: leave out %labels=sidecar.istio.io/inject=true; for "
            "Linkerd: leave out %annotations=linkerd.io/inject=enabled), or let it be added as a "
            "native sidecar (an init container with restartPolicy: Always)."
        )


def keepers(pod: Manifest) -> list[str]:
    """Return the names of the containers that run after the end of the program beside them."""
    if get(pod, "status", "phase") != "Running":
        return []
    if get(pod, "metadata", "deletionTimestamp") is not None:
        return []
    program = job_metadata.container(pod)
    return [
        str(one.get("name"))
        for one in many(pod, "status", "containerStatuses")
        if one.get("name") != program and get(one, "state", "running") is not None
    ]


def outcome(
    item: Manifest,
    now: Status,
    kept: Collection[Replica],
    pods: Mapping[Replica, Manifest | None],
) -> tuple[State, Replica] | None:
    """Return how a job ends whose pods do not end, and which replica decided; None if it runs on.

    Only the programs count: the controller's rules, as if each pod had ended with its program.
    Nobody stops the other replicas, so a success needs the end of all of them.

    Args:
        item: The job's object.
        now: The job's status.
        kept: The replicas that have ended and whose pods do not end.
        pods: Each replica's pod, if it has one.
    """
    if now.state.over or not kept:
        return None
    ends = {one.replica: one for one in now.replicas}
    decider = job_metadata.decider(item)
    won = ends.get(decider) if decider else None
    if won and get(pods.get(won.replica), "status", "phase") == "Succeeded":
        return None  # the controller sees this success, and will report it
    for one in sorted(kept):
        later = won and won.state is State.SUCCEEDED and won.since < ends[one].since
        if not later and foreseen.failed_for_good(ends[one], pods.get(one), item):
            return State.FAILED, one
    all_decide = job_metadata.is_decided_by_all(item)
    if won is None and not all_decide:
        return None
    endless = job_metadata.endless(item)
    finite = [one for one in now.replicas if one.replica.role not in endless]
    everyone = all_decide or apis.of_item(item).needs_all_workers(item)
    deciding = [one for one in finite if one.replica == decider or everyone]
    done = all(one.state is State.SUCCEEDED for one in deciding)
    last = max(finite, key=lambda one: one.since, default=None)
    by = decider or (last.replica if last else None)
    return (State.SUCCEEDED, by) if by and done and all(map(_is_over, finite)) else None


def _is_over(one: ReplicaStatus) -> bool:
    return one.state.over
