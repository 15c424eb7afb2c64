"""Files of ``%output`` through a claim (``by:claim``): what pods get, and the pod that reads them.

The sidecar of each pod copies the files into a folder of the job on the claim, and the pod ends.
Then a short-lived pod that mounts the claim reads them; it has neither GPUs nor a program.
"""

from __future__ import annotations

import posixpath
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, SpecError
from ciao_kernel.magics.directives import outputs, stored_volumes
from ciao_kernel.magics.directives.surviving import CheckpointPlace
from ciao_kernel.model import Checkpoint, JobSpec, Manifest, Replica, VolumeKind
from ciao_kernel.model.volume import overlap

NAME = "ciao-output-claim"
"""Name of the container that copies the files."""
READER = "ciao-output-reader"
"""Name of the pod that reads them, with a number behind it, and of its container."""
FOLDER = "ciao-kernel/output-folder"
"""Annotation of the pods: the claim, and the folder of the job on it."""
_CLAIM, _VOLUMES = "/ciao-claim", "/ciao-volumes"
"""Where the claim is mounted, and the volumes of the program."""
_OWN = "ciao-output"
"""Folder on the claim that has the folders of jobs."""
_FOLDER = re.compile(rf"(?:[^\x00-\x1f\x7f]+/)?{_OWN}/[0-9a-f]{{32}}")
_CLAIM_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")
_LONGEST = 3600
"""Seconds after which the cluster ends a pod that reads."""
_STAYS = (
    "import os,sys,time\nstays=float(sys.argv[1]);end=time.monotonic()+stays\n"
    "while time.monotonic()<end:\n time.sleep(1)\n"
    " if any(n.isdigit() and int(n)!=os.getpid() for n in os.listdir('/proc')):\n"
    "  end=time.monotonic()+stays\n"
)
"""The program of that pod: it ends when no command has run beside it for some time."""


@dataclass(frozen=True, slots=True)
class Copying:
    """The claim to which the pods of a job copy their files, and the folder on it."""

    claim: str
    path: str
    """The folder of the job on the claim."""

    @property
    def folder(self) -> str:
        """The path of that folder in a container."""
        return posixpath.join(_CLAIM, self.path)

    @property
    def notes(self) -> dict[str, str]:
        """The annotation of the pods."""
        return {FOLDER: f"{self.claim}/{self.path}"}

    @property
    def variables(self) -> dict[str, str]:
        """No variables: the folder is an argument."""
        return {}

    @property
    def hidden(self) -> bool:
        """False: there is nothing that the program may not see."""
        return False

    def mounted(self, known: Sequence[Manifest]) -> tuple[list[Manifest], list[Manifest]]:
        """Return the volume of the claim unless the pod has it, and its mount."""
        for one in known:
            named = one.get("persistentVolumeClaim", {})
            if named.get("claimName") == self.claim and not named.get("readOnly"):
                return [], [{"name": one["name"], "mountPath": _CLAIM}]
        source = {"claimName": self.claim}
        volume = {"name": "output-claim", "persistentVolumeClaim": source}
        return [volume], [{"name": volume["name"], "mountPath": _CLAIM}]


def place(spec: JobSpec, settings: Settings) -> Checkpoint:
    """Return the claim, and the folder in it, that has the folders of jobs.

    It is that of the setting, else that of ``%checkpoint``, else that of the first ``%volume``
    of all replicas that they may write to.

    Raises:
        SpecError: None is named.
    """
    if settings.output_claim:
        return CheckpointPlace().parse(settings.output_claim)
    if spec.checkpoint is not None:
        named = spec.checkpoint
        if not named.claim and not settings.checkpoint.startswith(("/", "~")):
            named = CheckpointPlace().parse(settings.checkpoint)
        if named.claim:
            return named
    for one in spec.shared_volumes:
        if one.kind is VolumeKind.CLAIM and not one.read_only:
            return Checkpoint(one.source)
    raise SpecError(
        "by:claim needs a claim to which replicas may write, and none is named.",
        "Name one for all jobs: `%ciao config outputClaim=CLAIM`. Or mount one: "
        "%volume=CLAIM:data.",
        directive="output",
    )


def copying(spec: JobSpec, settings: Settings) -> Copying:
    """Return what the pods of a new job need; nobody can guess the name of its folder.

    Raises:
        SpecError: No claim is named.
    """
    where = place(spec, settings)
    token = secrets.token_hex(16)
    return Copying(where.claim, posixpath.join(where.path, _OWN, token))


@dataclass(frozen=True, slots=True)
class Kept:
    """Where the files of a job are, as the pod that reads them sees it."""

    claim: str
    path: str

    def of(self, replica: Replica) -> str:
        """Return the folder of a replica, which has its files and marks."""
        return posixpath.join(_CLAIM, self.path, str(replica))

    @property
    def sentence(self) -> str:
        """Say where the files stay."""
        return f"They stay in {self.path} on the claim {self.claim}."


def kept(pod: Any) -> Kept | None:
    """Return where the sidecar of a pod, or of a template, copies the files; None without one.

    A pod's annotation is foreign input: the folder is one of ciao's, or there is none.
    """
    note = str(get(pod, "metadata", "annotations", FOLDER) or "")
    claim, _, path = note.partition("/")
    if not _CLAIM_NAME.fullmatch(claim) or not _FOLDER.fullmatch(path) or ".." in path.split("/"):
        return None
    return Kept(claim, path)


def volumes_of(pod: Any, words: Sequence[str]) -> list[tuple[str, Manifest, Manifest]]:
    """Return the claims that have files of ``%output`` themselves: path, mount and volume.

    Args:
        pod: A pod of the job, or its template.
        words: The paths of ``%output``.
    """
    program = _program(pod)
    base = str(program.get("workingDir") or "")
    found = []
    for mount in many(program, "volumeMounts"):
        path = posixpath.relpath(str(mount.get("mountPath")), base or "/")
        volume = _volume(pod, program, str(mount.get("mountPath")))
        named = get(volume, "persistentVolumeClaim")
        if named and any(overlap(posixpath.normpath(word), path) for word in words):
            found.append((path, mount, volume))
    return found


def also(header: str) -> dict[str, list[str]]:
    """Return further folders with files of a job, and beginnings of paths that are none of it.

    Args:
        header: The job's header.
    """
    words = [posixpath.normpath(word) for word in outputs.paths(header)]
    near = [
        one
        for one in stored_volumes.volumes_in(header)
        if one.kind is VolumeKind.CLAIM and any(overlap(word, one.where) for word in words)
    ]
    own = [f"{one.where}/{_OWN}/" for one in near]
    return {"also": [_VOLUMES] if near else [], "without": own}


def reader(pod: Any, words: Sequence[str], stays: float, owner: Any) -> Manifest:
    """Return the pod that reads the claim of a job.

    It has the image, the account and the restrictions of the job's pods, and may be where they may
    be; the node of the given one is preferred, as a disk may still be there.

    Args:
        pod: A pod of the job, or its template.
        words: The paths of ``%output``.
        stays: Seconds without a command after which it ends.
        owner: The job's object, with which the pod is deleted in any case.

    Raises:
        BackendError: The given one does not copy files to a claim.
    """
    sidecar, spec = _sidecar(pod), get(pod, "spec") or {}
    claim = _volume(pod, sidecar, _CLAIM)
    command = get(sidecar, "command")
    if not claim or not isinstance(command, list) or not command:
        raise BackendError(f"the pods of the job have no container {NAME} with a claim.")
    sources, mounts = [claim], [{"name": claim["name"], "mountPath": _CLAIM}]
    for path, mount, volume in volumes_of(pod, words):
        sources += [volume] if volume not in sources else []
        place = {"mountPath": posixpath.join(_VOLUMES, path), "readOnly": True}
        mounts.append({**_only(mount, "name", "subPath"), **place})
    container = {
        **_only(sidecar, "image", "resources", "securityContext"),
        "name": READER,
        "command": [command[0], "-I", "-S", "-c", _STAYS, f"{stays:g}"],
        "volumeMounts": mounts,
    }
    # The account may have the Secret for the image, and decides which rules of OpenShift hold. Not
    # the priority, by which it could end pods of others, and not the class of a runtime with GPUs.
    restrictions = ("securityContext", "tolerations", "nodeSelector", "serviceAccountName")
    made: Manifest = {
        **_only(spec, *restrictions, "imagePullSecrets"),
        "containers": [container],
        "volumes": sources,
        "restartPolicy": "Never",
        "activeDeadlineSeconds": _LONGEST,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
    }
    if node := spec.get("nodeName"):
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        near = {"weight": 100, "preference": {"matchFields": [field]}}
        made["affinity"] = {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [near]}
        }
    run = secrets.token_hex(8)
    istio = {"sidecar.istio.io/inject": "false"}
    meta: Manifest = {
        "name": f"{READER}-{run}",
        "labels": {job_metadata.MANAGED: "ciao", **istio},
        "annotations": {job_metadata.RUN: run, **istio, "linkerd.io/inject": "disabled"},
    }
    if uid := get(owner, "metadata", "uid"):
        named = {"name": owner["metadata"]["name"], "uid": uid}
        meta["ownerReferences"] = [{**_only(owner, "apiVersion", "kind"), **named}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": made}


def _sidecar(pod: Any) -> Any:
    all_of_them = many(pod, "spec", "initContainers")
    return next((one for one in all_of_them if one.get("name") == NAME), {})


def _program(pod: Any) -> Any:
    """Return the program's container; a cluster may have added others before it."""
    containers = many(pod, "spec", "containers")
    name = job_metadata.container({"metadata": {}, **(pod or {})})
    first = containers[0] if containers else {}
    return next((one for one in containers if one.get("name") == name), first)


def _volume(pod: Any, container: Any, place: str) -> Any:
    """Return the volume that a container has at a place."""
    mounts = many(container, "volumeMounts")
    name = next((one["name"] for one in mounts if one.get("mountPath") == place), None)
    volumes = many(pod, "spec", "volumes")
    return next((one for one in volumes if one.get("name") == name), {})


def _only(item: Any, *names: str) -> Manifest:
    return {name: item[name] for name in names if item.get(name)}
