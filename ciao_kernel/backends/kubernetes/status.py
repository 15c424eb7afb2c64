"""Status of a job, from its objects: pure functions.

The server may be older or newer than this code: a field that is missing or has another type counts
as unset, never as an error.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ciao_kernel.backends.kubernetes import job_metadata
from ciao_kernel.model import Job, Manifest, Replica, ReplicaStatus, State, Status

# Reasons of waiting containers that will not pass by waiting (kubelet,
# pkg/kubelet/images/types.go and container/sync_result.go).
HOPELESS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)


_SIGNALLED = (None, 137, 143)
"""Exit codes of a program that was killed or asked to end."""
_DEADLINE = "longer than specified deadline"
_GIVEN_UP = (_DEADLINE, "reached the specified backoff limit")
"""The operator's messages about jobs that failed without a failed replica (training-operator,
pkg/controller.v1/common/job.go)."""
DELETED = "deleted"
"""The reason of a replica whose pod was deleted while it ran."""


def stamp(text: Any) -> float:
    """Return the seconds since the epoch of a time in the API's format; 0 if there is none."""
    with contextlib.suppress(TypeError, ValueError):
        return datetime.fromisoformat(text).timestamp()
    return 0.0


def text(seconds: float) -> str:
    """Return a time in the API's format."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def get(item: Any, *path: str) -> Any:
    """Return the value at a path of keys, or None."""
    for key in path:
        if not isinstance(item, dict):
            return None
        item = item.get(key)
    return item


def many(item: Any, *path: str) -> list[Manifest]:
    """Return the objects of a list at a path; an empty list if there is none."""
    found = get(item, *path)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def conditions(item: Manifest) -> dict[str, Manifest]:
    """Return the conditions of an object that are true, by type."""
    return {
        str(one.get("type")): one
        for one in many(item, "status", "conditions")
        if one.get("status") == "True"
    }


def of_pod(pod: Manifest, replica: Replica) -> ReplicaStatus:
    """Return the status of a replica from its pod."""
    counts = [one.get("restartCount") for one in _program(pod)]
    return replace(
        _of_pod(pod, replica),
        node=str(get(pod, "spec", "nodeName") or ""),
        restarts=sum(count for count in counts if isinstance(count, int)),
    )


def _of_pod(pod: Manifest, replica: Replica) -> ReplicaStatus:
    phase = get(pod, "status", "phase")
    states = [state for one in _program(pod) if isinstance(state := one.get("state"), dict)]
    began = stamp(get(pod, "metadata", "creationTimestamp"))
    leaves = get(pod, "metadata", "deletionTimestamp") is not None
    # The phase shows the end late, or not at all while another container runs.
    once = leaves or get(pod, "spec", "restartPolicy") == "Never"
    if phase in ("Succeeded", "Failed") or once:
        for one in states:
            if isinstance(over := one.get("terminated"), dict):
                return _ended(pod, replica, over, began)
    if phase in ("Succeeded", "Failed"):  # for example evicted before a container ran
        state = State.SUCCEEDED if phase == "Succeeded" else State.FAILED
        return ReplicaStatus(replica, state, began, None, _words(pod))
    for one in states:
        if "running" in one:
            since = stamp(get(one, "running", "startedAt")) or began
            return ReplicaStatus(replica, State.RUNNING, since, None, "ending" if leaves else "")
    return ReplicaStatus(replica, State.PENDING, began, None, waiting_reason(pod)[1])


def _ended(pod: Manifest, replica: Replica, over: Manifest, began: float) -> ReplicaStatus:
    """Return the status of a program that ended by itself or with its deleted pod."""
    code = over.get("exitCode") if isinstance(over.get("exitCode"), int) else None
    ended = stamp(over.get("finishedAt")) or began
    if code == 0 or get(pod, "status", "phase") == "Succeeded":
        return ReplicaStatus(replica, State.SUCCEEDED, ended, code)
    if code in _SIGNALLED and over.get("reason") != "OOMKilled" and ended >= _termination_time(pod):
        return ReplicaStatus(replica, State.STOPPED, ended, None, DELETED)
    return ReplicaStatus(replica, State.FAILED, ended, _code(code), _reason(pod, over))


def _termination_time(pod: Manifest) -> float:
    """Return the time at which a pod was told to end; infinity if it was not."""
    at = stamp(get(pod, "metadata", "deletionTimestamp"))
    grace = get(pod, "metadata", "deletionGracePeriodSeconds")
    return at - (grace if isinstance(grace, int) else 0) if at else math.inf


def waiting_reason(pod: Manifest) -> tuple[str, str]:
    """Return why a pod does not run yet: a reason, and a text for the user; empty if unknown."""
    for one in many(pod, "status", "conditions"):
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            message = str(one.get("message") or "")
            words = f"unschedulable: {message}" if message else "unschedulable"
            return str(one.get("reason") or ""), words
    for key in ("initContainerStatuses", "containerStatuses"):
        for one in many(pod, "status", key):
            waiting = get(one, "state", "waiting")
            if not isinstance(waiting, dict):
                if words := _init(one) if key.startswith("init") else "":
                    return "", words
                continue
            reason = str(waiting.get("reason") or "")
            if reason in ("ContainerCreating", "PodInitializing", ""):
                continue
            message = " ".join(str(waiting.get("message") or "").split())
            return reason, f"{reason}: {message}" if message else reason
    return "", ""


def _init(one: Manifest) -> str:
    """Describe the state of an init container that others wait for; "" if it has succeeded."""
    if get(one, "state", "running") is not None:
        return f"its init container {one.get('name')} runs"
    code = get(one, "state", "terminated", "exitCode")
    return f"its init container {one.get('name')} ended with exit code {code}" if code else ""


def of_job(job: Job, item: Manifest, seen: Mapping[Replica, ReplicaStatus]) -> Status:
    """Return the job's status: its condition decides, not its pods.

    Args:
        job: The job, with the replicas of its submission.
        item: The job's object.
        seen: Known statuses of replicas, also of gone pods; someone may have added replicas.
    """
    holds = conditions(item)
    more = sorted(seen.keys() - set(job.replicas))
    replicas = tuple(seen.get(one) or ReplicaStatus(one) for one in (*job.replicas, *more))
    if failed := holds.get("Failed"):
        since = stamp(failed.get("lastTransitionTime"))
        given_up = any(words in str(failed.get("message")) for words in _GIVEN_UP)
        first = None if given_up else first_failed(replicas)
        replicas = _stopped(item, replicas, since, but=first)
        return Status(
            State.FAILED,
            replicas,
            since,
            reason=str(failed.get("reason") or ""),
            message=_why(failed, replicas, since),
            decided_by=first_failed(replicas),
        )
    if done := holds.get("Succeeded"):
        since = stamp(done.get("lastTransitionTime"))
        replicas = _stopped(item, replicas, since)
        return Status(State.SUCCEEDED, replicas, since, decided_by=job_metadata.decider(item))
    if suspended := holds.get("Suspended"):
        text = str(suspended.get("message") or "someone suspended it")
        return Status(State.PENDING, replicas, reason="Suspended", message=text)
    running = any(one.state is State.RUNNING for one in replicas)
    return Status(State.RUNNING if running else State.PENDING, replicas, _since(replicas))


def keeps_pods(item: Manifest) -> bool:
    """Return whether replicas keep running after the job's end."""
    return bool(get(item, "spec", "runPolicy", "cleanPodPolicy") == "None")


def _stopped(
    item: Manifest,
    replicas: tuple[ReplicaStatus, ...],
    since: float,
    but: Replica | None = None,
) -> tuple[ReplicaStatus, ...]:
    """Return replicas that ended because their job did as stopped, whatever their exit code.

    The exit code after SIGTERM may look like a failure of the program: torchrun exits with 1.

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
    """Return the last status of a finished job: the operator stops replicas that still run."""
    replicas = tuple(
        one if one.state.over else replace(one, state=State.STOPPED) for one in now.replicas
    )
    return replace(now, settled=True, replicas=replicas)


def first_failed(replicas: Iterable[ReplicaStatus]) -> Replica | None:
    """Return the replica that failed first, if any."""
    failed = [one for one in replicas if one.state is State.FAILED]
    return min(failed, key=lambda one: one.since).replica if failed else None


def _why(condition: Manifest, replicas: tuple[ReplicaStatus, ...], since: float) -> str:
    """Return the operator's message, unless the replicas' ends explain more."""
    said = str(condition.get("message") or "")
    late = _DEADLINE in said or str(condition.get("reason")).endswith("DeadlineExceeded")
    if late or any(one.reason.startswith("DeadlineExceeded") for one in replicas):
        return "the job ran longer than its %deadline."
    if any(one.state is State.FAILED for one in replicas):
        return ""
    # Pods that end later were deleted by the operator.
    if gone := [one for one in replicas if one.reason == DELETED and one.since <= since]:
        return f"somebody deleted the pod of {gone[0].replica}."
    return said


def _since(replicas: tuple[ReplicaStatus, ...]) -> float:
    return min((one.since for one in replicas if one.since), default=0.0)


def _reason(pod: Manifest, over: Manifest) -> str:
    if evicted := _words(pod):
        return evicted
    reason = str(over.get("reason") or "")
    return "" if reason in ("Completed", "Error") else reason


def _program(pod: Manifest) -> list[Manifest]:
    """Return the status of the program's container; all statuses if none has its name."""
    found = many(pod, "status", "containerStatuses")
    with contextlib.suppress(AttributeError, KeyError):
        name = job_metadata.container(pod)
        return [one for one in found if one.get("name") == name] or found
    return found


def _words(pod: Manifest) -> str:
    """Return the pod's own reason and message, as after an eviction."""
    words = [get(pod, "status", key) for key in ("reason", "message")]
    return ": ".join(word for word in words if isinstance(word, str) and word)


def _code(code: int | None) -> int | None:
    """Return the exit code in the model's form: a shell's 128 + n (signal n) becomes -n."""
    return code if code is None or code <= 128 or code > 192 else 128 - code
