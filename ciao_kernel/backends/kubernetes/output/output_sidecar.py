"""The container for the files of ``%output`` beside the program: pure functions.

It is a native sidecar (an init container with ``restartPolicy: Always``): the pod of an ended
program stays for it, but the program's own container is over, and its exit code is known. The
sidecar ends when the files are fetched, or nobody does so, and the controller sees the program's
end. Or, under another name, it writes the files into its own log and ends: none of these lines is
in the program's log, nor in what Kubernetes takes from that as the message of a failure. Or it
sends them to a bucket, a registry or a claim. See
:mod:`ciao_kernel.delivery.output.output_keeper`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from typing import Any

from ciao_kernel.backends.kubernetes.object_fields import get, literal, many
from ciao_kernel.backends.kubernetes.output import output_state, sidecar_resources
from ciao_kernel.backends.kubernetes.output.delivery import Delivery, Upload
from ciao_kernel.backends.kubernetes.output.output_claim import Copying
from ciao_kernel.config import Settings
from ciao_kernel.delivery import checkpoints, replica_files, site_folder
from ciao_kernel.delivery.output import output_keeper, results
from ciao_kernel.model import Artifact, JobSpec, Manifest
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.model.volume import overlap

OLDEST = (1, 29)
"""First version of Kubernetes with native sidecars by default."""
STORE_MOST = 4_900_000_000
"""Bytes of files in an object of a bucket, which is written by one request of 5 GiB at most."""
LONGEST_WRITING = 30
"""Seconds in which a sidecar writes the files into its log."""
_PLACE = "/ciao-output"
_COPIES = f"{_PLACE}/{replica_files.COPIES}"


def limit(settings: Settings, way: OutputWay) -> int:
    """Return the bytes of files that come back from a replica."""
    most = int(settings.fetch_limit)
    limits = {OutputWay.LOG: replica_files.LOG_MOST, OutputWay.S3: STORE_MOST}
    return min(most, limits.get(way, most))


def add(
    pod: Manifest, spec: JobSpec, artifact: Artifact, settings: Settings, delivery: Delivery
) -> Manifest:
    """Return the specification of a pod that keeps the files of ``%output`` and event files.

    Args:
        pod: The specification; its only container is the program's.
        spec: The cell's header.
        artifact: What the builder has delivered.
        settings: Waiting times, and the limit of all files.
        delivery: The way on which they leave the pod.
    """
    (program,) = pod["containers"]
    shared = any(one["mountPath"] == artifact.workdir for one in artifact.mounts)
    upload = delivery.upload
    marks = {"name": "output", "mountPath": _PLACE}
    volumes, mounts = upload.mounted(pod["volumes"]) if upload else ([], [])
    sidecar: Manifest = {
        "name": output_state.NAMES[delivery.way],
        "image": program["image"],
        "restartPolicy": "Always",
        "command": [*map(literal, _keep(spec, artifact, settings, delivery))],
        "workingDir": artifact.workdir if shared else _PLACE,
        "env": _env(upload, shared=shared),
        "resources": sidecar_resources.of_sidecar(program["resources"], delivery.rules),
        "volumeMounts": [
            *artifact.mounts,
            *(_logs(program, spec, artifact) if shared else ()),
            marks,
            *mounts,
        ],
    }
    if upload:
        sidecar["terminationMessagePolicy"] = "FallbackToLogsOnError"
    patience = output_state.LONGEST
    if delivery.way is OutputWay.LOG:
        patience = pod["terminationGracePeriodSeconds"] + LONGEST_WRITING
    run = [*map(literal, _run(spec, artifact, settings, delivery, shared=shared))]
    return {
        **pod,
        # Of one process namespace, each container sees the others below /proc.
        **({"shareProcessNamespace": False} if upload and upload.hidden else {}),
        "containers": [
            {
                **program,
                "command": run + program["command"],
                "volumeMounts": [*program["volumeMounts"], marks],
            }
        ],
        "initContainers": [*pod.get("initContainers", ()), sidecar],
        "volumes": [*pod["volumes"], {"name": "output", "emptyDir": {}}, *volumes],
        "terminationGracePeriodSeconds": patience,
    }


def _program(artifact: Artifact) -> list[str]:
    return [artifact.python, "-I", "-S", f"{site_folder.path(artifact.workdir)}/{results.KEEPER}"]


def _kept(spec: JobSpec, delivery: Delivery) -> list[str]:
    """Return the words for what is kept."""
    return [*spec.kept_paths, *([replica_files.VALUES] if delivery.values else [])]


def _run(
    spec: JobSpec, artifact: Artifact, settings: Settings, delivery: Delivery, *, shared: bool
) -> list[str]:
    """Return the command that runs the program, up to the program's own.

    Args:
        spec: The cell's header.
        artifact: What the builder has delivered.
        settings: The grace period, and the limit of all files.
        delivery: The way on which they leave the pod.
        shared: Whether the sidecar sees the program's folder; else copies are made for it.
    """
    grace, most = f"{settings.grace(spec.grace):g}", str(limit(settings, delivery.way))
    words = [*_kept(spec, delivery), *_without(spec)]
    copies = "" if shared else _COPIES
    return [*_program(artifact), "run", _PLACE, grace, copies, most, *words, "--"]


def _keep(spec: JobSpec, artifact: Artifact, settings: Settings, delivery: Delivery) -> list[str]:
    """Return the command of the sidecar, by the way of the files."""
    # Late: who only reads pods, as `ciao logs` does, needs no client of registries.
    from ciao_kernel.delivery.output import registry_program

    start, kept, way = _program(artifact), _kept(spec, delivery), delivery.way
    most = str(limit(settings, way))
    # Others may be about to end too, and are deleted when the job is over.
    linger = f"{settings.linger if len(spec.replicas()) > 1 else 0.0:g}"
    place, writing = [_PLACE, str(LONGEST_WRITING)], [linger, most, *kept]
    if way is OutputWay.LOG:
        return [*start, "tell", *place, *writing]
    if way is OutputWay.S3:
        return [*start, "send", *place, "2", *writing]
    if way is OutputWay.REGISTRY:
        return [*start[:3], "-c", registry_program.LOADER, "push", *place, "2", *writing]
    if isinstance(delivery.upload, Copying):
        folder = delivery.upload.folder
        return [*start, "save", *place, linger, most, folder, *kept, *_without(spec)]
    # Values alone hold a pod only if there are some.
    words = () if spec.kept_paths else kept
    return [*start, "keep", _PLACE, f"{settings.fetch_wait:g}", *words]


def _env(upload: Upload | None, *, shared: bool) -> list[Manifest]:
    found = {replica_files.HELD: _PLACE, **({} if shared else {replica_files.COPIED: _COPIES})}
    told = dict(upload.variables) if upload else {}
    env: list[Manifest] = [{"name": name, "value": value} for name, value in found.items()]
    env += [{"name": name, "value": literal(text)} for name, text in told.items()]
    if upload:
        uid = {"fieldRef": {"fieldPath": "metadata.uid"}}
        env.append({"name": replica_files.POD_UID, "valueFrom": uid})
    return env


def _without(spec: JobSpec) -> list[str]:
    """Return the words for the folders of the program whose files stay where they are.

    Event files of ``%tensorboard`` come from volumes too.
    """
    places = [one.where for one in spec.volumes]
    places += [checkpoints.WHERE] if spec.checkpoint is not None else []
    logs = spec.tensorboard
    own = [one for one in places if logs is None or not overlap(one, logs)]
    own = [one for one in own if not one.startswith("/")]
    return [output_keeper.WITHOUT, *own] if own else []


def _logs(program: Manifest, spec: JobSpec, artifact: Artifact) -> list[Manifest]:
    """Return the volumes of the cell that have the event files of ``%tensorboard``."""
    if spec.tensorboard is None:
        return []
    place = f"{artifact.workdir}/{spec.tensorboard}"
    return [
        one
        for one in program["volumeMounts"]
        if one not in artifact.mounts
        and one["mountPath"].startswith(f"{artifact.workdir}/")
        and overlap(one["mountPath"], place)
    ]


def grace(pod: Any) -> float | None:
    """Return the seconds in which a deleted pod ends if its node answers; None without a sidecar.

    Its own grace period is the time of a fetch, and of a pod whose files nobody fetches it is much
    too long.
    """
    seconds: list[float] = []
    for one in (
        *many(pod, "spec", "containers"),
        *many(pod, "spec", "initContainers"),
    ):
        command = get(one, "command")
        words = command if isinstance(command, list) else []
        for kind in ("run", "keep", "tell", "send", "push", "save"):
            with contextlib.suppress(ValueError, IndexError, TypeError):
                at = words.index(_PLACE)
                if words[at - 1] == kind:
                    seconds.append(float(words[at + 1]))
        linger = get(one, "lifecycle", "preStop", "sleep", "seconds")
        seconds += [linger] if isinstance(linger, int) else []
    named = any(
        one.get("name") in output_state.NAMES.values()
        for one in many(pod, "spec", "initContainers")
    )
    # Anybody may have written the words.
    known = (min(max(one, 0.0), output_state.LONGEST) for one in seconds if math.isfinite(one))
    return sum(known) if named else None


def is_native(templates: Iterable[Any]) -> bool:
    """Return whether templates that a server has accepted still have native sidecars.

    The schema of an older operator drops the field; the container would then be an ordinary init
    container, which never ends.
    """
    return all(
        one.get("restartPolicy") == "Always"
        for pod in templates
        for one in many(pod, "spec", "initContainers")
        if one.get("name") in output_state.NAMES.values()
    )
