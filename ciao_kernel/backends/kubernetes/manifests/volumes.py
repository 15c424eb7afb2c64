"""Volumes of the cell in the pods of a job: pure functions that return manifests."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from ciao_kernel.errors import SpecError
from ciao_kernel.model import Manifest
from ciao_kernel.model.volume import Volume, VolumeKind
from ciao_kernel.plugins import Plan

FS_GROUP = 1000
"""Group of the files on claims in namespaces that restrict pods.

Such a pod does not run as root, so without a group it could not write to a new disk. Kubernetes
applies it to volumes of CSI drivers that support it; NFS and hostPath keep their owners
(Kubernetes, "Configure a Security Context for a Pod")."""


def check(plan: Plan, host_folders: Sequence[str] = ()) -> None:
    """Check that pods can have the volumes of a cell.

    Args:
        plan: The program to run, with its volumes.
        host_folders: The setting ``hostFolders``: folders of nodes that a cell may mount.

    Raises:
        SpecError: A volume would hide files of the program, or no setting allows it.
    """
    paths = [file.path for file in plan.source.all()]
    for one in plan.spec.all_volumes:
        inside = (f"{one.path}/".startswith(f"{top.rstrip('/')}/") for top in host_folders)
        if one.kind is VolumeKind.HOST and not any(inside):
            raise SpecError(
                f"the volume {one} is a folder of the node, which no setting allows.",
                f"`ciao config hostFolders+={one.path}` allows it, where the cluster does; a claim "
                "is on any node.",
                directive="volume",
            )
        if hidden := one.hides(paths):
            raise SpecError(
                f"the volume {one} and the program's file {hidden} are at the same place.",
                "Name another folder in %volume.",
                directive="volume",
            )


def sources(volumes: Sequence[Volume]) -> list[Manifest]:
    """Return the entries of a pod's ``volumes``."""
    return [{"name": _name(number), **_source(one)} for number, one in enumerate(volumes)]


def mounts(volumes: Sequence[Volume], workdir: str) -> list[Manifest]:
    """Return the entries of a container's ``volumeMounts``.

    Args:
        volumes: The volumes, in the order of :func:`sources`.
        workdir: The program's folder, to which paths are relative.
    """
    return [_mount(_name(number), one, workdir) for number, one in enumerate(volumes)]


def one_for_each_claim(pod: Manifest) -> Manifest:
    """Return the spec of a pod that has each claim as one volume, whatever mounts it.

    A kubelet mounts a claim once, and waits without an end for a second volume with it. The volume
    is read-only if all of them are; each mount keeps what it may do.
    """
    kept: dict[str, Manifest] = {}
    by_claim: dict[str, str] = {}
    names: dict[str, str] = {}
    for one in pod["volumes"]:
        claim = one.get("persistentVolumeClaim", {})
        first = by_claim.setdefault(claim["claimName"], one["name"]) if claim else one["name"]
        names[one["name"]] = first
        if first == one["name"]:
            kept[first] = one
        elif not claim.get("readOnly"):
            kept[first] = {"name": first, "persistentVolumeClaim": claim}

    def renamed(container: Manifest) -> Manifest:
        mounts = [
            {**one, "name": names.get(one["name"], one["name"])}
            for one in container.get("volumeMounts", ())
        ]
        return {**container, "volumeMounts": mounts} if mounts else container

    found = {**pod, "volumes": list(kept.values())}
    for key in ("containers", "initContainers"):
        if key in pod:
            found[key] = [renamed(one) for one in pod[key]]
    return found


def group(pod: Manifest) -> Manifest:
    """Return what the security context of a restricted pod needs to write to its claims."""
    if not any("persistentVolumeClaim" in one for one in pod.get("volumes", ())):
        return {}
    # OnRootMismatch: otherwise the kubelet visits each file of a large disk at each start.
    return {"fsGroup": FS_GROUP, "fsGroupChangePolicy": "OnRootMismatch"}


def _name(number: int) -> str:
    return f"volume-{number}"


def _source(one: Volume) -> Manifest:
    # readOnly here too: the mount's alone would still attach the disk for writing.
    closed = {"readOnly": True} if one.read_only else {}
    if one.kind is VolumeKind.CLAIM:
        return {"persistentVolumeClaim": {"claimName": one.source, **closed}}
    if one.kind is VolumeKind.NFS:
        return {"nfs": {"server": one.source, "path": one.path, **closed}}
    if one.kind is VolumeKind.HOST:
        return {"hostPath": {"path": one.path, "type": "Directory"}}
    medium = {"medium": "Memory"} if one.kind is VolumeKind.MEMORY else {}
    return {"emptyDir": {**medium, **({"sizeLimit": one.size} if one.size else {})}}


def _mount(name: str, one: Volume, workdir: str) -> Manifest:
    found: Manifest = {"name": name, "mountPath": posixpath.join(workdir, one.where)}
    if one.kind is VolumeKind.CLAIM and one.path:
        found["subPath"] = one.path
    return found | ({"readOnly": True} if one.read_only else {})
