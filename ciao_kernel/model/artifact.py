"""What a builder made of a source, and the objects of Kubernetes that it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ciao_kernel.model.source import Source

Manifest = dict[str, Any]
"""A Kubernetes object or a part of one, as JSON has it."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """What a builder made of a source: how the replicas get it and where it lies for them.

    The last five are for pods, in the words of Kubernetes; a folder has none of them.
    """

    source: Source
    python: str
    """Interpreter, as the replica starts it."""
    workdir: str
    """The replica's working directory; the program lies in it."""
    env: tuple[tuple[str, str], ...] = ()
    image: str = ""
    """An image that holds the source; "": the one that the cell or the settings name."""
    objects: tuple[Manifest, ...] = ()
    """What has to exist beside the job and goes with it."""
    volumes: tuple[Manifest, ...] = ()
    mounts: tuple[Manifest, ...] = ()
    init_containers: tuple[Manifest, ...] = ()

    @property
    def program(self) -> str:
        """Path of the program for the replica."""
        return f"{self.workdir}/{self.source.entry.path}"
