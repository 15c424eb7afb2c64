"""Losses of a job's pods: those that the cluster or somebody took away, not the program's failures.

A deleted pod counts only if it was told to end before any program of the job failed: a controller
deletes the pods of a job that has failed. The order is that of the watch, which shows the failed
container before the operator can react to it; within one look the times decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.states import status
from ciao_kernel.model import Manifest, State, Status

_EXCUSES = 120.0
"""Seconds after a loss in which failures of other replicas are its consequences."""
_WAITS = 2400.0
"""The same if Kubernetes has replaced a pod that it disrupted. The new pod may be unable to join
the others, which wait for the lost one in a collective operation: 10 minutes with NCCL, 30 with
gloo (torch/distributed/constants.py)."""
_OF_NODES = frozenset(
    {"Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting", "NodeAffinity"}
)
"""Reasons of pods that their node has ended (Kubernetes, pkg/kubelet; pkg/util/node)."""
_REJECTED, _NO_ROOM = "UnexpectedAdmissionError", "OutOf"
"""Reason, and the begin of reasons (``OutOfcpu``), of pods that their node has not started, such as
while its device plug-in starts (Kubernetes, pkg/kubelet/lifecycle)."""
_NOT_STARTED = f"not started: {status.NO_MASTER}"
"""The fate of a worker that the training operator let wait for its master."""
_UNKNOWN = "ContainerStatusUnknown"
"""Reason of a container that is gone with the runtime of its node."""
_FAILED_REPLICAS = ("replica(s) failed", "backoff limit", "job failures")
"""Parts of the controllers' messages about jobs whose replicas have failed."""


@dataclass(frozen=True, slots=True)
class _Fate:
    """The end of one pod."""

    replica: str
    uid: str
    look: int
    """Number of the look that showed it."""
    at: float
    lost: str = ""
    """What was done to the pod, as part of a sentence; "" if its program failed."""
    certain: bool = False
    """Whether the cluster itself says that it disrupted the pod."""


class Losses:
    """Notes the ends of a job's pods while it is followed."""

    def __init__(self) -> None:
        self._fates: dict[str, _Fate] = {}
        self._newest: dict[str, tuple[str, str]] = {}
        """Creation time and uid of each replica's newest pod."""
        self._look = 0
        self._suspended: set[str] = set()
        """Pods that ended because the job was suspended: that is no loss."""

    def look(self, pods: Iterable[Manifest], *, suspended: bool = False) -> None:
        """Take pods that have changed, in their last states.

        Args:
            pods: The pods.
            suspended: Whether somebody has suspended the job, or it has lost its place in a queue.
        """
        self._look += 1
        touched = list(pods)
        if suspended:
            self._suspended |= {uid for _, uid in self._newest.values()} | self._fates.keys()
            self._suspended |= {str(get(pod, "metadata", "uid")) for pod in touched}
            self._fates.clear()
        for pod in touched:
            replica = job_metadata.replica(pod)
            if replica is None:
                continue
            uid = str(get(pod, "metadata", "uid"))
            made = (str(get(pod, "metadata", "creationTimestamp") or ""), uid)
            self._newest[str(replica)] = max(made, self._newest.get(str(replica), ("", "")))
            known = self._fates.keys() | self._suspended
            if uid not in known and (found := _fate(pod, str(replica), uid, self._look)):
                self._fates[uid] = found

    def excuse(self, now: Status) -> str:
        """Return which loss made a job fail, as a sentence without its full stop; "" if none did.

        Args:
            now: The status of the job.
        """
        if now.state is not State.FAILED or now.hopeless or "deadline" in now.message:
            return ""
        losses = [one for one in self._fates.values() if one.lost]
        failures = [
            one
            for one in self._fates.values()
            if not one.lost and self._newest[one.replica][1] == one.uid
        ]
        first = min(failures, key=lambda one: (one.look, one.at), default=None)
        for loss in losses:
            if first is None or _precedes(loss, first, self._patience(loss, first)):
                return f"{loss.replica} was {loss.lost}"
        # Its pod may be gone since before anybody looked; a program's failure leaves its pod.
        failed = any(one.state is State.FAILED for one in now.replicas)
        said = any(words in now.message for words in _FAILED_REPLICAS)
        return "" if losses or failures or failed or not said else "a replica was lost"

    def _patience(self, loss: _Fate, failure: _Fate) -> float:
        """Return for how many seconds after a loss a failure may be its consequence."""
        replaced = self._newest[loss.replica][1] != loss.uid
        # The new pod itself waits for nobody.
        waits = loss.certain and replaced and failure.replica != loss.replica
        return _WAITS if waits else _EXCUSES


def _precedes(loss: _Fate, failure: _Fate, patience: float) -> bool:
    if failure.at - loss.at > patience:
        return False
    if loss.look != failure.look:
        return loss.look < failure.look
    return loss.at < failure.at or (loss.certain and loss.at == failure.at)


def _fate(pod: Manifest, replica: str, uid: str, look: int) -> _Fate | None:
    """Return the end of a pod; None if it runs, waits or has succeeded."""
    over = next(
        (
            one
            for state in status.program(pod)
            if isinstance(one := get(state, "state", "terminated"), dict)
        ),
        None,
    )
    phase = get(pod, "status", "phase")
    told, why = _told(pod)
    ended = status.stamp(get(over, "finishedAt")) if over else 0.0
    if over and over.get("reason") == "OOMKilled":
        return _Fate(replica, uid, look, ended)
    if not over and phase == "Failed" and not why and (reason := _rejection(pod)):
        changes = [one.get("lastTransitionTime") for one in many(pod, "status", "conditions")]
        came = max(map(status.stamp, (*changes, get(pod, "metadata", "creationTimestamp"))))
        return _Fate(replica, uid, look, came, f"rejected by its node ({reason})", True)
    if over and over.get("reason") != _UNKNOWN and (not why or 0 < ended < told):
        return _Fate(replica, uid, look, ended) if over.get("exitCode") else None
    if phase == "Succeeded":
        return None
    if why:
        certain = bool(status.disruption(pod))
        return _Fate(replica, uid, look, told or ended, why, certain)
    if over:
        return _Fate(replica, uid, look, ended, "lost with the container runtime of its node", True)
    if phase != "Failed":
        return None
    if waited := status.gave_up_waiting(pod):
        return _Fate(replica, uid, look, status.stamp(waited.get("finishedAt")), _NOT_STARTED)
    return _Fate(replica, uid, look, ended)


def _rejection(pod: Manifest) -> str:
    """Return the reason for which a node has not started a pod; "" if it has no such reason."""
    reason = str(get(pod, "status", "reason") or "")
    return reason if reason == _REJECTED or reason.startswith(_NO_ROOM) else ""


def _told(pod: Manifest) -> tuple[float, str]:
    """Return when a pod was told to end from outside, and how; infinity and "" if it was not.

    The time is 0 if only the pod's reason tells that.
    """
    deleted, told = status.termination_time(pod), math.inf
    for one in many(pod, "status", "conditions"):
        if one.get("type") == "DisruptionTarget" and one.get("status") == "True":
            told = status.stamp(one.get("lastTransitionTime"))
    if told < math.inf:
        return min(told, deleted), status.disruption(pod) or "evicted by its node"
    if deleted < math.inf:
        return deleted, status.DELETED
    reason = str(get(pod, "status", "reason") or "")
    message = str(get(pod, "status", "message") or "")
    # A pod that uses more disk than its own limit is evicted too.
    if reason in _OF_NODES and not ("exceed" in message and "limit" in message):
        return 0.0, f"ended by its node ({reason})"
    return math.inf, ""
