"""What a training framework promises, and what it says of a job on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ciao_kernel.model import Address, Artifact, JobSpec, Manifest, Replica

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
"""The annotation that names a pod's program, where other containers are put beside it."""


class Framework(Protocol):
    """What is particular to one training framework: pure functions from a spec.

    A framework does no I/O and knows no builder and no backend.
    """

    name: str
    roles: tuple[str, ...]
    """In the order in which replicas are started and shown."""
    endless: frozenset[str]
    """Roles that never end by themselves."""
    package: str
    """The module that a program of this framework imports."""
    requirement: str
    """What pip installs to bring that module."""
    image: str
    """Image of its replicas on a cluster where neither cell nor settings name one."""

    def complete(self, spec: JobSpec) -> JobSpec:
        """Return the spec with the roles that the framework adds by itself.

        The session calls it once, right after parsing.

        Raises:
            SpecError: The roles cannot form a job; it names the directive to blame.
        """

    def decider(self, spec: JobSpec) -> Replica:
        """The replica whose success is the job's success."""

    def needs_package(self, spec: JobSpec) -> bool:
        """Whether the replicas cannot even start without :attr:`package`."""

    def command(self, spec: JobSpec, artifact: Artifact) -> tuple[str, ...]:
        """What a replica runs, as an argument vector: never a shell."""

    def environment(
        self, spec: JobSpec, replica: Replica, addresses: Mapping[Replica, Address]
    ) -> dict[str, str]:
        """What the training operator would put into this replica's environment."""

    def manifest(self, spec: JobSpec, pods: Mapping[str, Manifest]) -> JobManifest:
        """The job as the training operator takes it.

        Args:
            spec: What :meth:`complete` returned.
            pods: A pod template for each role; the framework names its container.
        """


@dataclass(frozen=True, slots=True)
class JobManifest:
    """What a framework says of a job on a cluster; the backend adds metadata and run policy."""

    api_version: str
    kind: str
    plural: str
    """As it stands in the API's paths."""
    container: str
    """The name that the operator looks for: the container that is the program."""
    spec: Manifest
