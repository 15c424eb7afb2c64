"""Protocol of builders, their input, and the cluster access that a backend gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ciao_kernel.model import Artifact, Event, JobSpec, Manifest, Source

Emit = Callable[[Event], None]
"""Shows an event immediately, without blocking."""


@dataclass(frozen=True, slots=True)
class PodResult:
    """Result of a builder's pod."""

    code: int | None
    """Exit code of its container; None if there is none, for example after an eviction."""
    message: str = ""
    """Termination message of the container; its content is not verified."""
    reason: str = ""
    """Reason from the cluster: ``OOMKilled``, ``Evicted``, ``DeadlineExceeded``; ``Deleted`` if
    somebody removed the pod, and :attr:`message` then names who or why."""
    first: tuple[str, ...] = ()
    """First lines of its log."""
    last: tuple[str, ...] = ()
    """Last lines of its log, if the log is longer."""


class BuildCluster(Protocol):
    """Access to the cluster that a backend gives to a builder."""

    namespace: str

    async def free(self) -> bool:
        """Return whether the user may run pods here, as far as is known."""

    async def run(self, pod: Manifest, beside: Sequence[Manifest], emit: Emit) -> PodResult:
        """Run a pod with one container to its end; then always remove the pod and its objects.

        Args:
            pod: Manifest with a unique name and without a namespace, which is added.
            beside: Objects that the pod mounts, with names; they are removed together with it.
            emit: Shows the log, each line with the prefix ``[build]``, and reasons for waiting.

        Raises:
            ClusterFault: The user lacks the rights, or the pod cannot start.
        """

    async def secret(self, name: str) -> Mapping[str, bytes]:
        """Read a Secret of the namespace.

        Raises:
            ClusterFault: The Secret does not exist, or the user may not read it.
        """


@dataclass(frozen=True, slots=True)
class Build:
    """Input of a builder, made by a backend."""

    source: Source
    """The source to deliver."""
    spec: JobSpec
    python: str
    """The interpreter of the replicas."""
    job: str
    """Name of the job; no other job in the same place has it."""
    folder: Path
    """The job's own folder on this machine; it exists."""
    work: Path
    """The user's folder; files that directives name are relative to it."""
    image: str = ""
    """Image of the replicas without a builder; "" if the replicas are not containers."""
    architecture: str = "amd64"
    """Architecture of the replicas' machines, in Go's notation."""
    dry: bool = False
    """True for a dry run: the result is computed, but nothing is left behind."""
    build_cluster: BuildCluster | None = None
    """Runs pods for the builder; None if there is no cluster."""


class Builder(Protocol):
    """Makes a source available to replicas. Created with the settings and kept for later cells."""

    name: str
    backend: str
    """Name of the backend that runs the result."""
    supported_fields: frozenset[str]
    """Names of the fields of :class:`~ciao_kernel.model.BuildSpec` that the builder supports."""

    async def build(self, ask: Build, emit: Emit) -> Artifact:
        """Deliver the source and return the artifact, by which replicas find it.

        Args:
            ask: The input.
            emit: Shows messages about slow steps.

        Raises:
            SpecError, SourceError: This builder cannot deliver the source.
            EnvironmentFault: The disk is full or not writable.
        """
