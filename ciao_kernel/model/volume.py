"""A volume of a job: data from outside, which the program sees as a folder."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class VolumeKind(enum.StrEnum):
    """The source of a volume."""

    CLAIM = "claim"
    """A PersistentVolumeClaim of the job's namespace."""
    NFS = "nfs"
    HOST = "host"
    """A folder of the node, or of this machine."""
    TMP = "tmp"
    """An empty folder on the replica's disk, one for each replica."""
    MEMORY = "memory"
    """An empty folder in the replica's memory, which counts as memory of the replica."""


@dataclass(frozen=True, slots=True)
class Volume:
    """One value of ``%volume``, in its normal form.

    Args:
        kind: The source.
        source: Name of the claim, or the NFS server; "" for empty folders.
        path: Folder inside a claim, without a leading slash, the exported path of a server, or the
            path of a folder of the node.
        size: Limit of an empty folder in Kubernetes' notation; "" means none.
        where: The folder's path: relative to the program's folder, or absolute.
        read_only: Whether replicas may only read it.
    """

    kind: VolumeKind
    where: str
    source: str = ""
    path: str = ""
    size: str = ""
    read_only: bool = False

    @property
    def what(self) -> str:
        """Return the source as a header names it."""
        if self.kind is VolumeKind.CLAIM:
            return f"{self.source}/{self.path}" if self.path else self.source
        if self.kind is VolumeKind.NFS:
            return f"nfs://{self.source}{self.path}"
        if self.kind is VolumeKind.HOST:
            return f"host:{self.path}"
        return f"{self.kind}:{self.size}" if self.size else str(self.kind)

    @property
    def is_absolute(self) -> bool:
        """Return whether the folder's path does not depend on the program's folder."""
        return self.where.startswith("/")

    def __str__(self) -> str:
        """Return the volume as a header names it."""
        return f"{self.what}:{self.where}" + (":ro" if self.read_only else "")

    def hides(self, paths: Iterable[str]) -> str | None:
        """Return the first of a program's files that this volume would hide, or None.

        A file whose path is a parent folder of the volume counts too: both cannot exist.
        """
        return next((path for path in paths if overlap(path, self.where)), None)


CHECKPOINT = "checkpoint"
"""Folder of ``%checkpoint`` beside the program."""


def overlap(one: str, other: str) -> bool:
    """Return whether two paths are equal, or one lies below the other."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
