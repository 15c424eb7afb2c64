"""Result of a build: the delivered source and the Kubernetes objects that it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ciao_kernel.model.source import Source

Manifest = dict[str, Any]
"""A Kubernetes object, or a part of it, as decoded JSON."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """Result of a build: how the replicas get the source and where they find it.

    The last six fields are for pods and use Kubernetes' terms; they are empty for a folder.
    """

    source: Source
    python: str
    """The Python interpreter that the replica starts."""
    workdir: str
    """The replica's working directory; it contains the program."""
    env: tuple[tuple[str, str], ...] = ()
    image: str = ""
    """An image that contains the source; "" means the image that the cell or the settings name."""
    objects: tuple[Manifest, ...] = ()
    """Objects that the job needs; they are deleted with it."""
    volumes: tuple[Manifest, ...] = ()
    mounts: tuple[Manifest, ...] = ()
    init_containers: tuple[Manifest, ...] = ()
    architecture: str = ""
    """The only architecture whose nodes can run the image or the packages, in Go's notation; ""
    means any. Its nodes are selected unless the cell selects others."""

    @property
    def program(self) -> str:
        """Path of the program in the replica."""
        return f"{self.workdir}/{self.source.entry.path}"

    @property
    def program_words(self) -> tuple[str, ...]:
        """Words after Python's own options that start the program: its path, or ``-m NAME``.

        torchrun takes the same words (``torch/distributed/run.py``, ``--module``).
        """
        return ("-m", self.source.module) if self.source.module else (self.program,)
