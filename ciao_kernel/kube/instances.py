"""Instances of one container, read from its pod: a container may restart in place.

A pod may come from any version of the server: a field of another type counts as unset.
"""

from __future__ import annotations

from dataclasses import dataclass

from ciao_kernel.kube.object_shape import Object, objects, part


@dataclass(frozen=True, slots=True)
class ContainerInstance:
    """The newest instance in the pod's status.

    Args:
        id: Container ID.
        number: Number of earlier starts.
        ended: The instance is no longer running.
        before: ID of the previous instance, whose log ``previous=true`` returns; "" if none.
    """

    id: str
    number: int
    ended: bool
    before: str


def seen(pod: Object, container: str) -> ContainerInstance | None:
    """Return the container's newest instance, or None if it was not started yet."""
    status = _status(pod, container)
    state = part(status, "state")
    last = part(part(status, "lastState"), "terminated")
    before, count = str(last.get("containerID") or ""), status.get("restartCount")
    number = count if isinstance(count, int) else 0
    if "running" in state:
        # A pod that is over has no running container, despite its status: the node went away.
        found, ended = status.get("containerID"), _phase(pod) in _OVER
    elif "terminated" in state:
        own = part(state, "terminated").get("containerID")
        found, ended = own or status.get("containerID"), True
    else:  # the container waits for its next start; the log is still of the previous instance
        found, ended, before = before, True, ""
    return (
        ContainerInstance(str(found), number, ended, before if before != found else "")
        if found
        else None
    )


def over(pod: Object, container: str) -> bool:
    """Return whether the container cannot start again."""
    if _phase(pod) in _OVER:
        return True
    spec = part(pod, "spec")
    state = part(_status(pod, container), "state")
    if "terminated" not in state:
        return False
    if part(pod, "metadata").get("deletionTimestamp"):
        return True
    own = [one for one in objects(spec.get("containers")) if one.get("name") == container]
    # In newer clusters, a container may have its own restart rules.
    ruled = any("restartPolicy" in one or "restartPolicyRules" in one for one in own)
    if not own or ruled:
        return False
    # A pod with another container may stay alive after this end (an injected proxy).
    succeeded = part(state, "terminated").get("exitCode") == 0
    policy = spec.get("restartPolicy")
    return policy == "Never" or (policy == "OnFailure" and succeeded)


def forgotten(pod: Object, container: str) -> bool:
    """Return whether the pod is over, and its status has lost the container's ID.

    A node does so that does not find the container again after a restart
    (``ContainerStatusUnknown``), and an older kubelet that evicts a pod. The ID never comes back.
    """
    return _phase(pod) in _OVER and seen(pod, container) is None


_OVER = ("Succeeded", "Failed")


def _phase(pod: Object) -> str:
    return str(part(pod, "status").get("phase") or "")


def _status(pod: Object, container: str) -> Object:
    status = part(pod, "status")
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for one in objects(status.get(kind)):
            if one.get("name") == container:
                return one
    return {}
