"""Protocol of training frameworks, and their description of a job on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ciao_kernel.model import Address, Artifact, JobSpec, Manifest, Replica

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
"""Annotation that names the pod's main container, for pods with further containers."""


class Framework(Protocol):
    """The specifics of one training framework, as pure functions of a spec.

    A framework does no I/O and is independent of builders and backends.
    """

    name: str
    roles: tuple[str, ...]
    """Roles, in the order in which replicas are started and shown."""
    endless: frozenset[str]
    """Roles that never end by themselves."""
    package: str
    """The module that a program of this framework imports."""
    requirement: str
    """Requirement with which pip installs that module."""
    image: str
    """Image of its replicas on a cluster if neither the cell nor the settings name an image."""

    def complete(self, spec: JobSpec) -> JobSpec:
        """Return the spec with the roles that the framework adds by itself.

        The session calls it once, right after parsing.

        Raises:
            SpecError: The roles cannot form a job; the error names the wrong directive.
        """

    def decider(self, spec: JobSpec) -> Replica:
        """Return the replica whose success is the job's success."""

    def needs_package(self, spec: JobSpec) -> bool:
        """Return whether the replicas cannot start without :attr:`package`."""

    def command(self, spec: JobSpec, artifact: Artifact) -> tuple[str, ...]:
        """Return the command of a replica, as an argument vector; no shell is involved."""

    def environment(
        self, spec: JobSpec, replica: Replica, addresses: Mapping[Replica, Address]
    ) -> dict[str, str]:
        """Return the environment variables that the training operator would set for a replica."""

    def manifest(self, spec: JobSpec, pods: Mapping[str, Manifest]) -> JobManifest:
        """Return the job in the format of the training operator.

        Args:
            spec: Result of :meth:`complete`.
            pods: A pod template for each role; the framework names its container.
        """


@dataclass(frozen=True, slots=True)
class JobManifest:
    """A framework's description of a cluster job; the backend adds metadata and run policy."""

    api_version: str
    kind: str
    plural: str
    """Resource name in API paths."""
    container: str
    """Name by which the operator finds the container of the program."""
    spec: Manifest
