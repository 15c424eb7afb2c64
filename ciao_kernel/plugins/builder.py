"""What a builder promises, what it is asked for, and what a backend lends to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ciao_kernel.model import Artifact, Event, JobSpec, Manifest, Source

Emit = Callable[[Event], None]
"""Shows an event, at once and without waiting."""


@dataclass(frozen=True, slots=True)
class PodEnd:
    """How a builder's pod ended."""

    code: int | None
    """The exit code of its container; None where it has none, as after an eviction."""
    message: str = ""
    """What the container left as its termination message. It proves nothing."""
    reason: str = ""
    """What the cluster says of it: ``OOMKilled``, ``Evicted``, ``DeadlineExceeded``; ``Deleted``
    where somebody removed it, and :attr:`message` says who or why."""
    first: tuple[str, ...] = ()
    """The first lines of its log."""
    last: tuple[str, ...] = ()
    """The last ones, of a log that is longer."""


class Workshop(Protocol):
    """What a backend lends to a builder whose work needs a place in the cluster."""

    namespace: str

    async def free(self) -> bool:
        """Whether the user may run pods here, as far as is known."""

    async def run(self, pod: Manifest, beside: Sequence[Manifest], emit: Emit) -> PodEnd:
        """Run a pod of one container to its end; nothing of it is left, however this ends.

        Args:
            pod: It has a name that no other pod has. What it lacks is what a namespace says.
            beside: Objects that it mounts, with names; they go with it.
            emit: Shows its log, each line behind ``[build]``, and why it waits.

        Raises:
            ClusterFault: The user may not do that, or the pod cannot start.
        """

    async def secret(self, name: str) -> Mapping[str, bytes]:
        """Read a Secret of the namespace.

        Raises:
            ClusterFault: There is none, or the user may not read it.
        """


@dataclass(frozen=True, slots=True)
class Build:
    """What a backend asks a builder for."""

    source: Source
    """What to deliver."""
    spec: JobSpec
    python: str
    """The replicas' interpreter."""
    job: str
    """The job's name, which no other job of the place has."""
    folder: Path
    """A folder on this machine that is the job's own; it exists."""
    work: Path
    """Where the user works: files that directives name are found from there."""
    image: str = ""
    """What the replicas would run without a builder; "" where they are no containers."""
    architecture: str = "amd64"
    """Of the machines that they will run on, in Go's words."""
    dry: bool = False
    """Nothing may be left behind: it is only asked what would come of it."""
    workshop: Workshop | None = None
    """Runs pods for the builder; None where there is no cluster."""


class Builder(Protocol):
    """Makes a source available to replicas. Made with the settings, and kept for later cells."""

    name: str
    backend: str
    """Name of the backend that runs what it builds."""
    brings: frozenset[str]
    """What it can bring beside the source: names of fields of
    :class:`~ciao_kernel.model.BuildSpec`."""

    async def build(self, ask: Build, emit: Emit) -> Artifact:
        """Deliver the source and return how a replica finds it.

        Args:
            ask: What is wanted.
            emit: Shows a sentence about a step that takes long.

        Raises:
            SpecError, SourceError: It cannot be had in this way.
            EnvironmentFault: There is no room or no right to write.
        """
