"""Instances of one container, read from its pod: a container may restart in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ciao_kernel.kube.client import Object


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
    state = status.get("state") or {}
    last = (status.get("lastState") or {}).get("terminated") or {}
    before, number = str(last.get("containerID") or ""), int(status.get("restartCount") or 0)
    if "running" in state:
        # A pod that is over has no running container, despite its status: the node went away.
        found, ended = status.get("containerID"), _phase(pod) in _OVER
    elif "terminated" in state:
        found, ended = state["terminated"].get("containerID") or status.get("containerID"), True
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
    spec = pod.get("spec") or {}
    ended = "terminated" in (_status(pod, container).get("state") or {})
    if not ended:
        return False
    if pod["metadata"].get("deletionTimestamp"):
        return True
    own = [one for one in spec.get("containers") or () if one.get("name") == container]
    # In newer clusters, a container may have its own restart rules.
    ruled = any("restartPolicy" in one or "restartPolicyRules" in one for one in own)
    return spec.get("restartPolicy") == "Never" and bool(own) and not ruled


_OVER = ("Succeeded", "Failed")


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def _status(pod: Object, container: str) -> dict[str, Any]:
    status = pod.get("status") or {}
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for one in status.get(kind) or ():
            if one.get("name") == container:
                found: dict[str, Any] = one
                return found
    return {}
