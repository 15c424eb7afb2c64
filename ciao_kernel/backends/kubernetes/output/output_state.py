"""Where the files of ``%output`` of a pod are, as its status tells: pure functions.

A container beside the program (:mod:`.output_sidecar`) keeps them until they are fetched, or sends
them elsewhere.
"""

from __future__ import annotations

from typing import Any

from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.output import output_claim
from ciao_kernel.backends.kubernetes.states import status
from ciao_kernel.delivery.output import values_message
from ciao_kernel.model.outputs import OutputWay

NAME, LOG_NAME, STORE_NAME = "ciao-output", "ciao-output-log", "ciao-output-s3"
REGISTRY_NAME = "ciao-output-registry"
"""Names of the container that keeps the files until they are fetched, of the one that writes them
into its log, of the one that writes them to a bucket, and of the one that pushes them; that of the
one that copies them to a claim is in :mod:`.output_claim`."""
NAMES = {
    OutputWay.EXEC: NAME,
    OutputWay.LOG: LOG_NAME,
    OutputWay.S3: STORE_NAME,
    OutputWay.REGISTRY: REGISTRY_NAME,
    OutputWay.CLAIM: output_claim.NAME,
}
"""Each of them by the way of the files."""
LONGEST = 3600
"""Seconds in which all files have to be fetched. The sidecar ends earlier if nobody does so."""
_BEGUN = ("running", "terminated")


def keeps(pod: Any) -> bool:
    """Return whether the container runs: files can be fetched from it."""
    return any(
        one.get("name") == NAME and get(one, "state", "running") is not None
        for one in many(pod, "status", "initContainerStatuses")
    )


def has_keeper(pod: Any) -> bool:
    """Return whether a container keeps, or has kept, the files until they are fetched."""
    return any(one.get("name") == NAME for one in many(pod, "spec", "initContainers"))


def is_held(pod: Any) -> bool:
    """Return whether the program has ended for good, and the pod stays for its files."""
    return stays(pod) and _has_ended(pod)


def stays(pod: Any) -> bool:
    """Return whether the container runs that holds a pod, and the pod is not being deleted."""
    deleted = get(pod, "metadata", "deletionTimestamp") is not None
    return keeps(pod) and not deleted


def runs(pod: Any) -> bool:
    """Return whether the program runs, and the container beside it."""
    states = (get(one, "state", "running") for one in status.program(pod))
    return any(one is not None for one in states) and keeps(pod)


def sends(pod: Any) -> OutputWay | None:
    """Return where the files of a program that has ended for good are or go; None: nowhere yet."""
    for one in many(pod, "status", "initContainerStatuses"):
        begun = any(get(one, "state", kind) is not None for kind in _BEGUN)
        for way in (OutputWay.LOG, OutputWay.S3, OutputWay.REGISTRY, OutputWay.CLAIM):
            if one.get("name") == NAMES[way] and begun and _has_ended(pod):
                return way
    return None


def end(pod: Any) -> Any:
    """Return how the container has ended that sends files elsewhere; None before that."""
    ends = [
        get(one, "state", "terminated")
        for one in many(pod, "status", "initContainerStatuses")
        if one.get("name") in (STORE_NAME, REGISTRY_NAME, output_claim.NAME)
    ]
    return ends[0] if ends else None


def _has_ended(pod: Any) -> bool:
    """Return whether the program has ended, and is not started again."""
    ended = [get(one, "state", "terminated") for one in status.program(pod)]
    policy = get(pod, "spec", "restartPolicy")
    return bool(ended) and all(one is not None and _is_last(one, policy) for one in ended)


def _is_last(end: Any, policy: Any) -> bool:
    """Return whether the kubelet does not start a container again after its end."""
    if policy == "OnFailure":
        return bool(get(end, "exitCode") == 0)
    return bool(policy == "Never")


def has_values(pod: Any) -> bool:
    """Return whether the program of a pod has ended, and has written values as files."""
    return values_message.names_files(status.last_words(pod))
