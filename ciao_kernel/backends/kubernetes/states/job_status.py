"""Status of a job, from its object and the statuses of its replicas: pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.apis.operator_v1 import DEADLINE
from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.backends.kubernetes.states import queues, silent_node, trainer_progress
from ciao_kernel.backends.kubernetes.states.status import DELETED, DISRUPTIONS, conditions, stamp
from ciao_kernel.model import Job, Manifest, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.status import QUEUED, SUSPENDED


def of_job(job: Job, item: Manifest, seen: Mapping[Replica, ReplicaStatus]) -> Status:
    """Return the job's status: its condition decides, not its pods.

    A job that is being deleted has ended, even if a finalizer keeps its object: the operator does
    nothing for it any more (training-operator, pkg/controller.v1/*/*job_controller.go, Reconcile).

    Args:
        job: The job, with the replicas of its submission.
        item: The job's object.
        seen: Known statuses of replicas, also of gone pods; someone may have added replicas.
    """
    holds, api = conditions(item), apis.of_item(item)
    more = sorted(seen.keys() - set(job.replicas))
    replicas = tuple(seen.get(one) or ReplicaStatus(one) for one in (*job.replicas, *more))
    if failed := api.condition(holds, api.failed):
        since = stamp(failed.get("lastTransitionTime"))
        given_up = any(words in str(failed.get("message")) for words in api.given_up)
        first = None if given_up else first_failed(replicas)
        replicas = _stopped(item, replicas, since, but=first)
        return Status(
            State.FAILED,
            replicas,
            since,
            reason=str(failed.get("reason") or ""),
            message=_why(failed, replicas, since, api.given_up),
            decided_by=first_failed(replicas),
        )
    if done := api.condition(holds, api.succeeded):
        since = stamp(done.get("lastTransitionTime"))
        replicas = _stopped(item, replicas, since)
        return Status(State.SUCCEEDED, replicas, since, decided_by=job_metadata.decider(item))
    if is_deleted(item):
        since = stamp(get(item, "metadata", "deletionTimestamp"))
        ended = (one if one.state.over else _stop(one, since) for one in replicas)
        return Status(State.STOPPED, tuple(ended), since, message=DELETED)
    if queues.waits(item):
        return Status(State.PENDING, replicas, reason=QUEUED, message=queues.words(item))
    if suspended := holds.get("Suspended"):
        text = str(suspended.get("message") or "someone suspended it")
        return Status(State.PENDING, replicas, reason=SUSPENDED, message=text)
    # If all have ended, only the controller's word is missing: the job waits for nothing.
    began = any(one.state is State.RUNNING for one in replicas) or (
        bool(replicas) and all(one.state.over for one in replicas)
    )
    state = State.RUNNING if began else State.PENDING
    return Status(state, replicas, _since(replicas), told=trainer_progress.told(item))


def is_deleted(item: Manifest) -> bool:
    """Return whether somebody has deleted the job; a finalizer may still keep its object."""
    return get(item, "metadata", "deletionTimestamp") is not None


def keeps_pods(item: Manifest) -> bool:
    """Return whether replicas keep running after the job's end; those of an MPIJob do not."""
    if get(item, "spec", "mpiReplicaSpecs") is not None:
        return False
    return bool(apis.of_item(item).policy(item).get("cleanPodPolicy") == "None")


def _stopped(
    item: Manifest,
    replicas: tuple[ReplicaStatus, ...],
    since: float,
    but: Replica | None = None,
) -> tuple[ReplicaStatus, ...]:
    """Return replicas that ended because their job did as stopped, whatever their exit code.

    The exit code after SIGTERM may look like a failure of the program.

    Args:
        item: The job's object.
        replicas: All replicas, with the statuses of their pods.
        since: Time of the job's end.
        but: The replica that failed by itself, even if its node's clock shows another order.
    """

    def told(one: ReplicaStatus) -> bool:
        failed = one.state is State.FAILED and not one.reason
        return failed and 0 < since < one.since and one.replica != but

    if keeps_pods(item):
        return replicas
    return tuple(replace(one, state=State.STOPPED) if told(one) else one for one in replicas)


def settled(now: Status) -> Status:
    """Return the last status of a finished job: the controller stops replicas that still run."""
    replicas = tuple(one if one.state.over else _stop(one, now.since) for one in now.replicas)
    return replace(now, settled=True, replicas=replicas)


def _stop(one: ReplicaStatus, since: float) -> ReplicaStatus:
    """Return a replica as stopped by its job's end; it waits for nothing any more.

    Nobody saw its own end. What was known of its time is its start, which is no end: without the
    time of the job's end its end is unknown.
    """
    if one.state is State.PENDING:  # it never ran
        return replace(one, state=State.STOPPED, since=0.0, reason="")
    return replace(one, state=State.STOPPED, since=max(since, one.since) if since else 0.0)


def first_failed(replicas: Iterable[ReplicaStatus]) -> Replica | None:
    """Return the replica that failed first, if any."""
    failed = [one for one in replicas if one.state is State.FAILED]
    return min(failed, key=lambda one: one.since).replica if failed else None


def _why(
    condition: Manifest,
    replicas: tuple[ReplicaStatus, ...],
    since: float,
    given_up: tuple[str, ...],
) -> str:
    """Return the controller's message, unless the replicas' ends explain more."""
    said = str(condition.get("message") or "")
    late = DEADLINE in said or str(condition.get("reason")).endswith("DeadlineExceeded")
    if late or any(one.reason.startswith("DeadlineExceeded") for one in replicas):
        return "the job ran longer than its %deadline."
    # The replica may have failed after SIGTERM, and others because it was gone.
    lost = (*DISRUPTIONS.values(), silent_node.LOST)
    if evicted := [one for one in replicas if one.reason in lost]:
        return f"the pod of {evicted[0].replica} was {evicted[0].reason}."
    if any(one.state is State.FAILED for one in replicas):
        return ""
    if any(words in said for words in given_up):
        return said
    # Pods that end later were deleted by the controller; in the second of the job's end, by either.
    if gone := [one for one in replicas if one.reason == DELETED and int(one.since) <= since]:
        first = min(int(one.since) for one in gone)
        which = [str(one.replica) for one in gone if int(one.since) == first]
        return f"somebody deleted the pod of {' or '.join(which)}."
    return said


def _since(replicas: tuple[ReplicaStatus, ...]) -> float:
    return min((one.since for one in replicas if one.since), default=0.0)
