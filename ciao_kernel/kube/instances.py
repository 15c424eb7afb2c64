"""What a pod's object says about the instances of one container: it may start again in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ciao_kernel.kube.client import Object


@dataclass(frozen=True, slots=True)
class Seen:
    """The newest instance that the API server knows of.

    Args:
        id: Its container ID.
        number: How often the container had been started before.
        ended: It does not run any more.
        before: ID of the instance before it, whose log ``previous=true`` gets; "" if none.
    """

    id: str
    number: int
    ended: bool
    before: str


def seen(pod: Object, container: str) -> Seen | None:
    """Return the container's newest instance, or None if none was started yet."""
    status = _status(pod, container)
    state = status.get("state") or {}
    last = (status.get("lastState") or {}).get("terminated") or {}
    before, number = str(last.get("containerID") or ""), int(status.get("restartCount") or 0)
    if "running" in state:
        # A pod that is over has no running container: its node went away.
        found, ended = status.get("containerID"), _phase(pod) in _OVER
    elif "terminated" in state:
        found, ended = state["terminated"].get("containerID") or status.get("containerID"), True
    else:  # it waits for its next start, and the log is still that of its last end
        found, ended, before = before, True, ""
    return Seen(str(found), number, ended, before if before != found else "") if found else None


def over(pod: Object, container: str) -> bool:
    """Tell whether the container cannot start again."""
    if _phase(pod) in _OVER:
        return True
    spec = pod.get("spec") or {}
    ended = "terminated" in (_status(pod, container).get("state") or {})
    if not ended:
        return False
    if pod["metadata"].get("deletionTimestamp"):
        return True
    own = [one for one in spec.get("containers") or () if one.get("name") == container]
    # Newer clusters let a container have rules of its own.
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
