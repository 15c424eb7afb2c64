"""Status of a replica, from its pod: pure functions.

As in :mod:`.object_fields`, a field that is missing or has another type counts as unset.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.states import silent_node
from ciao_kernel.kube.server_clock import ServerClock
from ciao_kernel.model import Manifest, Replica, ReplicaStatus, State, Status
from ciao_kernel.visible_text import short

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


NOT_STARTED = ("StartError", "ContainerCannotRun")
"""Reasons of containers whose program could not be executed, as where an image has no Python."""
_WAITS = "init-pytorch"
"""The training operator's init container, in which a PyTorchJob's worker waits for its master. It
gives up after 100 tries, some minutes (pkg/controller.v1/pytorch/initcontainer.go)."""
NO_MASTER = "the master was not ready in time"
_LONGEST = 300
_SIGNALLED = (None, 137, 143)
"""Exit codes of a program that was killed or asked to end."""
DELETED = "deleted"
"""The reason of a replica whose pod was deleted while it ran."""
# Reasons of a pod's condition DisruptionTarget (Kubernetes, pkg/apis/core/types.go and
# pkg/apis/policy/types.go), and what each does to a pod, as part of a sentence.
DISRUPTIONS = {
    "EvictionByEvictionAPI": "evicted, as when its node is drained",
    "DeletionByTaintManager": "evicted because its node has a taint",
    "PreemptionByScheduler": "evicted to make room for a pod of higher priority",
    "DeletionByPodGC": "removed because its node is gone",
}


def stamp(text: Any) -> float:
    """Return the seconds since the epoch of a time in the API's format; 0 if there is none."""
    with contextlib.suppress(TypeError, ValueError):
        return datetime.fromisoformat(text).timestamp()
    return 0.0


def text(seconds: float) -> str:
    """Return a time in the API's format."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def conditions(item: Manifest) -> dict[str, Manifest]:
    """Return the conditions of an object that are true, by type.

    Trainer copies those of the JobSet of that name. For a further try that may be the JobSet of the
    try before, which is about to be removed: what is not younger than the object does not count
    then. For all other jobs each condition counts: the API server sets the time of creation, and
    the controller that of a condition, by a clock that may be behind.
    """
    made = 0.0
    if apis.trainer.is_object(item) and get(item, "metadata", "annotations", job_metadata.TRY):
        made = stamp(get(item, "metadata", "creationTimestamp"))
    return {
        str(one.get("type")): one
        for one in many(item, "status", "conditions")
        if one.get("status") == "True" and not 0 < stamp(one.get("lastTransitionTime")) <= made
    }


def of_pod(pod: Manifest, replica: Replica) -> ReplicaStatus:
    """Return the status of a replica from its pod."""
    counts = [one.get("restartCount") for one in program(pod)]
    return replace(
        _of_pod(pod, replica),
        node=str(get(pod, "spec", "nodeName") or ""),
        restarts=sum(count for count in counts if isinstance(count, int)),
        last_exit=_last_exit(pod),
    )


def _last_exit(pod: Manifest) -> int | None:
    """Return the exit code of the program's run before this one."""
    codes = [get(one, "lastState", "terminated", "exitCode") for one in program(pod)]
    return _code(next((code for code in codes if isinstance(code, int)), None))


def _of_pod(pod: Manifest, replica: Replica) -> ReplicaStatus:
    phase = get(pod, "status", "phase")
    states = [state for one in program(pod) if isinstance(state := one.get("state"), dict)]
    began = stamp(get(pod, "metadata", "creationTimestamp"))
    leaves = get(pod, "metadata", "deletionTimestamp") is not None
    # The phase shows the end late, or not at all while another container runs.
    policy = get(pod, "spec", "restartPolicy")
    once = phase in ("Succeeded", "Failed") or leaves or policy == "Never"
    for one in states:
        over = one.get("terminated")
        done = policy == "OnFailure" and get(over, "exitCode") == 0  # not started again
        if isinstance(over, dict) and (once or done):
            return _ended(pod, replica, over, began)
    if phase in ("Succeeded", "Failed"):
        # Evicted before a container ran, or with a node that is gone: no status tells the end.
        state = State.SUCCEEDED if phase == "Succeeded" else State.FAILED
        init = _failed_init(pod)
        target = None if init else disruption_target(pod)  # what came later is not the reason
        ended = stamp(get(target, "lastTransitionTime")) or began
        return ReplicaStatus(replica, state, ended, None, _words(pod) or init or disruption(pod))
    for one in states:
        if "running" in one:
            since = stamp(get(one, "running", "startedAt")) or began
            return ReplicaStatus(replica, State.RUNNING, since, None, _trouble(pod, leaves))
    return ReplicaStatus(replica, State.PENDING, began, None, waiting_reason(pod)[1])


def _trouble(pod: Manifest, leaves: bool) -> str:
    """Return why a program that runs may soon end, or may have ended already; "" if it does not."""
    if silent_node.has(pod):
        return silent_node.SILENT
    why = disruption(pod) if leaves else ""
    return f"ending: {why}" if why else "ending" if leaves else ""


def _ended(pod: Manifest, replica: Replica, over: Manifest, began: float) -> ReplicaStatus:
    """Return the status of a program that ended by itself or with its deleted pod."""
    code = over.get("exitCode") if isinstance(over.get("exitCode"), int) else None
    ended = stamp(over.get("finishedAt")) or _last_change(pod, began)
    if code == 0 or get(pod, "status", "phase") == "Succeeded":
        return ReplicaStatus(replica, State.SUCCEEDED, ended, code)
    if code in _SIGNALLED and over.get("reason") != "OOMKilled" and ended >= termination_time(pod):
        return ReplicaStatus(replica, State.STOPPED, ended, None, disruption(pod) or DELETED)
    return ReplicaStatus(replica, State.FAILED, ended, _code(code), _reason(pod, over))


def _last_change(pod: Manifest, began: float) -> float:
    """Return the latest known time of a pod, for an end that nobody has seen."""
    told = termination_time(pod)
    changes = (stamp(one.get("lastTransitionTime")) for one in many(pod, "status", "conditions"))
    return max(began, told if told < math.inf else 0.0, *changes)


def disruption(pod: Manifest | None, before: float = math.inf) -> str:
    """Return what the cluster did to a pod that it disrupted, as part of a sentence; "" if not.

    Args:
        pod: The pod.
        before: Time of the program's end: what came later is not its reason.
    """
    one = disruption_target(pod)
    if one is None or stamp(one.get("lastTransitionTime")) > before:
        return ""
    return DISRUPTIONS.get(str(one.get("reason")), "")


def disruption_target(pod: Manifest | None) -> Manifest | None:
    """Return the condition of a pod that the cluster ends, such as on a node that shuts down."""
    found = (one for one in many(pod, "status", "conditions") if one.get("status") == "True")
    return next((one for one in found if one.get("type") == "DisruptionTarget"), None)


def termination_time(pod: Manifest) -> float:
    """Return the time at which a pod was told to end; infinity if it was not."""
    at = stamp(get(pod, "metadata", "deletionTimestamp"))
    grace = get(pod, "metadata", "deletionGracePeriodSeconds")
    return at - (grace if isinstance(grace, int) else 0) if at else math.inf


def waiting_reason(pod: Manifest) -> tuple[str, str]:
    """Return why a pod does not run yet: a reason, and a text for the user; empty if unknown.

    A reason of :data:`HOPELESS` comes first, whichever container has it. Otherwise it is that of
    the first container that others wait for.
    """
    for one in many(pod, "status", "conditions"):
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            message = str(one.get("message") or "")
            words = f"unschedulable: {message}" if message else "unschedulable"
            return str(one.get("reason") or ""), words
    sidecars = native_sidecars(pod)
    init = (_init(one, sidecars) for one in many(pod, "status", "initContainerStatuses"))
    found = [*init, *map(_waiting, many(pod, "status", "containerStatuses"))]
    reasons = [one for one in found if one[1]]
    hopeless = (one for one in reasons if one[0] in HOPELESS)
    return next(hopeless, reasons[0] if reasons else ("", ""))


def native_sidecars(pod: Manifest) -> frozenset[str]:
    """Return the names of the init containers that run beside the program.

    Kubernetes 1.29 (``KEP-753``): an init container with ``restartPolicy: Always``. The kubelet
    starts the next container once it has started, and ends it after the program.
    """
    return frozenset(
        str(one.get("name"))
        for one in many(pod, "spec", "initContainers")
        if one.get("restartPolicy") == "Always"
    )


def _waiting(one: Manifest) -> tuple[str, str]:
    """Return why a container waits; empty if it does not, or only for others."""
    waiting = get(one, "state", "waiting")
    reason = str(get(waiting, "reason") or "")
    if reason in ("ContainerCreating", "PodInitializing", ""):
        return "", ""
    message = " ".join(str(get(waiting, "message") or "").split())
    return reason, f"{reason}: {message}" if message else reason


def at_local_time(now: Status, clock: ServerClock) -> Status:
    """Return a status whose times are by this machine's clock: for all who are not in here."""
    local = clock.to_local
    replicas = tuple(replace(one, since=local(one.since)) for one in now.replicas)
    return replace(now, since=local(now.since), replicas=replicas)


def _init(one: Manifest, sidecars: frozenset[str]) -> tuple[str, str]:
    """Return why an init container keeps others waiting; empty if it does not."""
    name = one.get("name")
    if get(one, "state", "waiting") is not None:
        return _waiting(one)
    if name in sidecars:
        # Without a startup probe it has started as soon as it runs.
        starts = get(one, "state", "running") is not None and one.get("started") is False
        return "", f"its sidecar {name} is starting" if starts else ""
    if get(one, "state", "running") is not None:
        return "", f"its init container {name} runs"
    code = get(one, "state", "terminated", "exitCode")
    return "", f"its init container {name} ended with exit code {code}" if code else ""


def gave_up_waiting(pod: Manifest) -> Manifest | None:
    """Return the end of the init container that has waited for the master in vain; None if not."""
    for one in many(pod, "status", "initContainerStatuses"):
        if _is_given_up(one):
            return dict(one["state"]["terminated"])
    return None


def _is_given_up(one: Manifest) -> bool:
    return one.get("name") == _WAITS and get(one, "state", "terminated", "exitCode") == 1


def _failed_init(pod: Manifest) -> str:
    """Return which init container ended a pod before its program began; "" if none did."""
    sidecars = native_sidecars(pod)
    for one in many(pod, "status", "initContainerStatuses"):
        over = get(one, "state", "terminated")
        if get(over, "exitCode") and one.get("name") not in sidecars:
            said = NO_MASTER if _is_given_up(one) else _last_line(get(over, "message"))
            return _init(one, sidecars)[1] + (f": {said}" if said else "")
    return ""


def _last_line(message: Any) -> str:
    """Return the end of a container's message for a sentence: it may be the end of a log."""
    lines = [line for line in str(message or "").splitlines() if line.strip()]
    return short(" ".join(lines[-1].split()).rstrip("."), _LONGEST) if lines else ""


def _reason(pod: Manifest, over: Manifest) -> str:
    ended = stamp(over.get("finishedAt")) or math.inf
    if evicted := _words(pod) or disruption(pod, ended):
        return evicted
    reason = str(over.get("reason") or "")
    if reason in NOT_STARTED and (why := _last_line(over.get("message"))):
        return f"{reason}: {why}"
    return "" if reason == "Error" else reason  # of any program that fails


def program(pod: Manifest) -> list[Manifest]:
    """Return the status of the program's container; all statuses if none has its name."""
    found = many(pod, "status", "containerStatuses")
    with contextlib.suppress(AttributeError, KeyError):
        name = job_metadata.container(pod)
        return [one for one in found if one.get("name") == name] or found
    return found


def last_words(pod: Manifest) -> str:
    """Return the termination message of the program's container; "" if it has none."""
    found = (get(one, "state", "terminated", "message") for one in program(pod))
    return next((text for text in found if isinstance(text, str)), "")


def _words(pod: Manifest) -> str:
    """Return the pod's own reason and message, as after an eviction."""
    words = [get(pod, "status", key) for key in ("reason", "message")]
    return ": ".join(word for word in words if isinstance(word, str) and word)


def _code(code: int | None) -> int | None:
    """Return the exit code in the model's form: a shell's 128 + n (signal n) becomes -n."""
    return code if code is None or code <= 128 or code > 192 else 128 - code
