"""Protocol of training frameworks, and their description of a job on a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

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
    """Roles that never end by themselves, whatever the spec: see :func:`endless_roles`."""
    package: str
    """The module that a program of this framework imports."""
    requirement: str
    """Requirement with which pip installs that module."""
    image: str
    """Image of its replicas on a cluster if neither the cell nor the settings name an image.

    "" means that none is known; then the cell or the settings must name one.
    """

    def complete(self, spec: JobSpec) -> JobSpec:
        """Return the spec with the roles that the framework adds by itself.

        The session calls it once, right after parsing.

        Raises:
            SpecError: The roles cannot form a job; the error names the wrong directive.
        """

    def decider(self, spec: JobSpec) -> Replica | None:
        """Return the replica whose success is the job's success.

        None means that a job succeeds when all its replicas do, except those of endless roles.
        """

    def needs_package(self, spec: JobSpec) -> bool:
        """Return whether the replicas cannot start without :attr:`package`."""

    def command(self, spec: JobSpec, artifact: Artifact) -> tuple[str, ...]:
        """Return the command of a replica, as an argument vector; no shell is involved."""

    def environment(
        self, spec: JobSpec, replica: Replica, addresses: Mapping[Replica, Address]
    ) -> dict[str, str]:
        """Return the variables of a replica, such as the training operator would set.

        Args:
            spec: Result of :meth:`complete`.
            replica: The replica.
            addresses: Address of each replica of the job, in the order of ``spec.replicas()``.
        """


@runtime_checkable
class OperatorKind(Protocol):
    """The optional part of a :class:`Framework` that has a kind of the training operator.

    Jobs of other frameworks run as Indexed Jobs of Kubernetes, which need only the methods of
    :class:`Framework`.
    """

    def manifest(self, spec: JobSpec, pods: Mapping[str, Manifest]) -> JobManifest:
        """Return the job in the format of the training operator.

        Args:
            spec: Result of :meth:`complete`.
            pods: A pod template for each role; the framework names its container, and adds
                variables that the operator does not set
                (:func:`ciao_kernel.frameworks.replicas.with_variables`).

        Raises:
            SpecError: The framework has no job of this kind.
        """


@runtime_checkable
class Launching(Protocol):
    """The optional part of a :class:`Framework` one of whose replicas starts the program in others.

    :meth:`Framework.command` is what it starts. Without an operator the other replicas connect to
    the deciding one, which starts the program in them.
    """

    programs: tuple[str, ...]
    """Programs that the replicas need: beside the interpreter, or on ``PATH``."""

    def replica_command(self, spec: JobSpec, artifact: Artifact, role: str) -> tuple[str, ...]:
        """Return the command of the replicas of a role, as an argument vector."""

    def relay_environment(
        self, spec: JobSpec, replica: Replica, addresses: Mapping[Replica, Address]
    ) -> dict[str, str]:
        """Return the variables of a replica of a TrainJob or an Indexed Job.

        As :meth:`Framework.environment`, which is for replicas of one machine.
        """


@runtime_checkable
class StartedBySsh(Protocol):
    """The optional part of a :class:`Launching` framework that mpi-operator can run too."""

    def ssh_manifest(self, spec: JobSpec, pods: Mapping[str, Manifest]) -> JobManifest:
        """Return the job in the format of mpi-operator; as :meth:`OperatorKind.manifest`."""


@runtime_checkable
class AnyLanguage(Protocol):
    """The optional part of a :class:`Framework` whose programs need not be Python.

    The text of such a cell is not compiled, its replicas need no Python, and ``CIAO_CELL`` is the
    path of its file. Its jobs run as Indexed Jobs.
    """

    def executable(self, spec: JobSpec) -> str:
        """Return the program that a replica starts: a name on ``PATH``, or a path.

        Args:
            spec: Result of :meth:`Framework.complete`.
        """


@runtime_checkable
class Refusing(Protocol):
    """The optional part of a :class:`Framework` that refuses some of its roles with a reason."""

    refused_roles: frozenset[str]
    """Roles that :meth:`Framework.complete` refuses; help and Tab do not offer them."""


@runtime_checkable
class Serving(Protocol):
    """The optional part of a :class:`Framework` that has a server of its own for some roles.

    ``%serve`` starts that server in these roles, instead of the cell.
    """

    servers: tuple[str, ...]
    """Roles in which the server can run."""

    def server_command(self, spec: JobSpec, artifact: Artifact) -> tuple[str, ...]:
        """Return the command of a replica that only serves, as an argument vector."""


@runtime_checkable
class Forkable(Protocol):
    """The optional part of a :class:`Framework` whose programs can run in forks of a process.

    ``%warm`` keeps processes that have imported the framework, and forks them for each run. A
    framework that connects before the program starts, or has a launcher of its own, is none.
    """

    def processes(
        self, spec: JobSpec, replica: Replica, addresses: Mapping[Replica, Address]
    ) -> list[dict[str, str]]:
        """Return the variables of each process that a replica forks for a run.

        Args:
            spec: Result of :meth:`Framework.complete`.
            replica: The replica.
            addresses: Host and free port of each replica, in the order of ``spec.replicas()``.
        """


OPTIONAL_FRAMEWORK_PARTS = (
    OperatorKind, Launching, StartedBySsh, AnyLanguage, Refusing, Serving, Forkable,
)  # fmt: skip
"""All protocols that a :class:`Framework` may implement too."""


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
    ends_pods: bool = False
    """True if pods end by themselves with the job, and the operator must not delete them before:
    their logs would go with them."""


def replica_command(
    framework: Framework, spec: JobSpec, artifact: Artifact, role: str
) -> tuple[str, ...]:
    """Return the command of the replicas of a role.

    Args:
        framework: The framework of the job.
        spec: Result of :meth:`Framework.complete`.
        artifact: What the builder has delivered.
        role: The role.
    """
    if isinstance(framework, Launching):
        return framework.replica_command(spec, artifact, role)
    if role in spec.serve and isinstance(framework, Serving):
        return framework.server_command(spec, artifact)
    return framework.command(spec, artifact)


def endless_roles(framework: Framework, serve: Iterable[str]) -> frozenset[str]:
    """Return the roles of a job that never end by themselves.

    Args:
        framework: The framework of the job.
        serve: The roles that only serve: ``spec.serve``.
    """
    return framework.endless | frozenset(serve)
