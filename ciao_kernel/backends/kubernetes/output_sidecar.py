"""The container that keeps the files of ``%output`` after the program's end: pure functions.

It is a native sidecar (an init container with ``restartPolicy: Always``): the pod of an ended
program stays for it, but the program's own container is over, and its exit code is known. The
sidecar ends when the files are fetched, or nobody does so, and the controller sees the program's
end. See :mod:`ciao_kernel.delivery.output_keeper`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from typing import Any

from ciao_kernel.backends.kubernetes import status
from ciao_kernel.config import Settings
from ciao_kernel.delivery import replica_files, results, site_folder
from ciao_kernel.model import Artifact, JobSpec, Manifest

NAME = "ciao-output"
OLDEST = (1, 29)
"""First version of Kubernetes with native sidecars by default."""
LONGEST = 3600
"""Seconds in which all files have to be fetched. The sidecar ends earlier if nobody does so."""
_PLACE = "/ciao-output"
_COPIES = f"{_PLACE}/{replica_files.COPIES}"
_CPU, _MEMORY = ("10m", "500m"), ("32Mi", "256Mi")
"""Requests and limits, where the program's container has some."""


def add(pod: Manifest, spec: JobSpec, artifact: Artifact, settings: Settings) -> Manifest:
    """Return the specification of a pod that keeps the files that ``%output`` names.

    Args:
        pod: The specification; its only container is the program's.
        spec: The cell's header.
        artifact: What the builder has delivered.
        settings: Waiting times, and the limit of all files.
    """
    (program,) = pod["containers"]
    shared = any(one["mountPath"] == artifact.workdir for one in artifact.mounts)
    script = f"{site_folder.path(artifact.workdir)}/{results.KEEPER}"
    marks = {"name": "output", "mountPath": _PLACE}
    limit = int(settings.fetch_limit)
    start = (artifact.python, "-I", "-S", script)
    grace = f"{settings.grace(spec.grace):g}"
    copies = () if shared else (_COPIES,)
    run = [*start, "run", _PLACE, grace, *(copies or ("",)), str(limit), *spec.output_paths, "--"]
    sidecar: Manifest = {
        "name": NAME,
        "image": program["image"],
        "restartPolicy": "Always",
        "command": [*start, "keep", _PLACE, f"{settings.fetch_wait:g}"],
        "workingDir": artifact.workdir if shared else _PLACE,
        "env": [{"name": replica_files.HELD, "value": _PLACE}],
        "resources": _resources(program["resources"]),
        "volumeMounts": [*artifact.mounts, marks],
    }
    return {
        **pod,
        "containers": [
            {
                **program,
                "command": [word.replace("$", "$$") for word in run] + program["command"],
                "volumeMounts": [*program["volumeMounts"], marks],
            }
        ],
        "initContainers": [*pod.get("initContainers", ()), sidecar],
        "volumes": [*pod["volumes"], {"name": "output", "emptyDir": {}}],
        "terminationGracePeriodSeconds": LONGEST,
    }


def _resources(program: Manifest) -> Manifest:
    """Return small amounts of what a quota may require for each container."""
    found: Manifest = {}
    for number, kind in enumerate(("requests", "limits")):
        amounts = {
            name: both[number]
            for name, both in (("cpu", _CPU), ("memory", _MEMORY))
            if name in program.get(kind, {})
        }
        if amounts:
            found[kind] = amounts
    return found


def keeps(pod: Any) -> bool:
    """Return whether the container runs: files can be fetched from it."""
    return any(
        one.get("name") == NAME and status.get(one, "state", "running") is not None
        for one in status.many(pod, "status", "initContainerStatuses")
    )


def grace(pod: Any) -> float | None:
    """Return the seconds in which a deleted pod ends if its node answers; None without a sidecar.

    Its own grace period is the time of a fetch, and of a pod whose files nobody fetches it is much
    too long.
    """
    seconds: list[float] = []
    for one in (
        *status.many(pod, "spec", "containers"),
        *status.many(pod, "spec", "initContainers"),
    ):
        command = status.get(one, "command")
        words = command if isinstance(command, list) else []
        for kind in ("run", "keep"):
            with contextlib.suppress(ValueError, IndexError, TypeError):
                at = words.index(_PLACE)
                if words[at - 1] == kind:
                    seconds.append(float(words[at + 1]))
        linger = status.get(one, "lifecycle", "preStop", "sleep", "seconds")
        seconds += [linger] if isinstance(linger, int) else []
    named = any(one.get("name") == NAME for one in status.many(pod, "spec", "initContainers"))
    # Anybody may have written the words.
    known = (min(max(one, 0.0), LONGEST) for one in seconds if math.isfinite(one))
    return sum(known) if named else None


def is_held(pod: Any) -> bool:
    """Return whether the program has ended for good, and the pod stays for its files."""
    if not keeps(pod) or status.get(pod, "metadata", "deletionTimestamp") is not None:
        return False
    ended = [status.get(one, "state", "terminated") for one in status.program(pod)]
    policy = status.get(pod, "spec", "restartPolicy")
    return bool(ended) and all(one is not None and _is_last(one, policy) for one in ended)


def _is_last(end: Any, policy: Any) -> bool:
    """Return whether the kubelet does not start a container again after its end."""
    if policy == "OnFailure":
        return bool(status.get(end, "exitCode") == 0)
    return bool(policy == "Never")


def is_native(templates: Iterable[Any]) -> bool:
    """Return whether templates that a server has accepted still have native sidecars.

    The schema of an older operator drops the field; the container would then be an ordinary init
    container, which never ends.
    """
    return all(
        one.get("restartPolicy") == "Always"
        for pod in templates
        for one in status.many(pod, "spec", "initContainers")
        if one.get("name") == NAME
    )
