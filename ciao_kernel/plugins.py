"""What plug-ins promise: frameworks, builders and backends, and the display that shows a job.

A third party's plug-in follows one of these protocols and brings an entry point
(``docs/extending.md``). Plug-ins know the values of :mod:`ciao_kernel.model` and nothing of
each other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ciao_kernel.model import (
    Address,
    Artifact,
    Event,
    Job,
    JobSpec,
    Manifest,
    Owner,
    Replica,
    Source,
    Status,
)
from ciao_kernel.queries import HERE, WHOLE_LOG, Details, LogOptions, Streams, Where

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
"""The annotation that names a pod's program, where other containers are put beside it."""

Emit = Callable[[Event], None]
"""Shows an event, at once and without waiting."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a backend needs to submit a job; made by the session, checked before use."""

    name: str | None
    """The name that the user gave, or None. The backend adds to it what makes it unique."""
    spec: JobSpec
    framework: Framework
    source: Source
    folder: Path
    """Where the user works: the folder of the notebook, or of the file."""
    header: str
    owner: Owner


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


class Backend(Protocol):
    """Runs jobs somewhere. All methods may be called from any process of the same user."""

    name: str
    outlives_kernel: bool
    """Whether a job goes on when the kernel that made it ends, if no setting says otherwise."""

    def available(self) -> bool:
        """Whether ``auto`` may choose this backend here. Cheap, and asks nobody."""

    async def check(self, plan: Plan) -> None:
        """Raise what can be known to go wrong, before anything exists."""

    async def preview(self, plan: Plan, builder: Builder) -> str:
        """What :meth:`submit` would do, for a reader; creates nothing.

        With ``DryRun.SERVER`` it raises what a submission would.
        """

    async def submit(self, plan: Plan, builder: Builder, emit: Emit, *, outlive: bool) -> Job:
        """Build and start; the job exists when this returns, or nothing of it does.

        Args:
            plan: What to run; :meth:`check` has accepted it.
            builder: Makes the artifact.
            emit: Shows sentences about slow steps.
            outlive: The job goes on when ``plan.owner`` ends.
        """

    def follow(self, job: Job, *, since: float = 0.0) -> AsyncIterator[Event]:
        """Yield all output from the start, and states as they change; ends when settled.

        Every line comes exactly once, and all of them before the last :class:`Status`.

        Args:
            job: What to follow.
            since: Seconds since the epoch; lines that are known to be older are left out.

        Raises:
            UsageError: Nobody knows how old lines are here.
            JobLost: What runs the job is gone.
        """

    async def stop(self, job: Job, reason: str) -> None:
        """End all replicas; returns when they have ended."""

    async def delete(self, job: Job) -> None:
        """Stop the job and remove what it left, its files included."""

    async def jobs(self, where: Where = HERE) -> list[tuple[Job, Status]]:
        """Every job that the backend knows there, oldest first."""

    async def find(self, name: str, where: Where = HERE) -> tuple[Job, Status]:
        """One job by its name.

        Raises:
            NoSuchJob: There is none.
            UsageError: There are several, in different places.
        """

    async def details(self, job: Job) -> Details:
        """All that is known of a job beside its status."""

    async def log(self, job: Job, replica: Replica, options: LogOptions = WHOLE_LOG) -> bytes:
        """The output of one replica so far, or a part of it.

        Raises:
            UsageError: This backend does not know what is asked for, such as lines' times.
            BackendError: What is asked for does not exist.
        """

    async def execute(
        self, job: Job, replica: Replica, command: Sequence[str], streams: Streams
    ) -> int:
        """Run a command beside a replica, as if it were part of it; return its exit code.

        A cancellation leaves nothing open here; in a pod the command may go on.

        Args:
            job: Which job.
            replica: Where.
            command: An argument vector: never a shell.
            streams: What it reads and writes.

        Raises:
            BackendError: It could not be started, or nobody knows how it ended.
        """

    def remains(self, job: Job) -> str:
        """What is left of a job that was stopped, as the end of a sentence.

        While :meth:`stop` works on it: what it still waits for.
        """

    async def close(self) -> None:
        """Give back what was opened for several calls, such as connections."""


class Display(Protocol):
    """Where a session shows what happens. Two renderers: notebook and terminal."""

    def begin(self, job: Job, follow: tuple[str, ...]) -> None:
        """A job is about to be followed; ``follow`` names the roles and replicas to show."""

    def show(self, event: Event) -> None:
        """Take one event. Returns at once: what is shown is written a little later."""

    async def end(self) -> None:
        """Write all that was taken. Called once after each :meth:`begin`, also on errors."""
