"""The values that travel from one step of a cell to the next, and the plug-ins' contracts.

::

    text ─ magics.parse ─► JobSpec + code ─ workspace ─► Source ─ builder ─► Artifact
         ─ framework + backend ─► Job ─ follow ─► Event … ─► display

Standard library only, no I/O. Plug-ins (frameworks, builders, backends) know these types
and nothing of each other.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

# --------------------------------------------------------------------------- what to run


class CleanPolicy(enum.StrEnum):
    """What goes when the job is over; the names are the training operator's, in lower case."""

    RUNNING = "running"
    ALL = "all"
    NONE = "none"


class Runner(enum.StrEnum):
    """What starts the cell in a replica."""

    AUTO = "auto"
    PYTHON = "python"
    TORCHRUN = "torchrun"


@dataclass(frozen=True, slots=True, order=True)
class Replica:
    """One member of a job; ``str()`` gives the name that prefixes its log, ``worker-0``."""

    role: str
    index: int

    def __str__(self) -> str:
        return f"{self.role}-{self.index}"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A number of devices of one resource name, as Kubernetes counts them."""

    count: int
    resource: str = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Resources:
    """What one replica asks for. Quantities stay text: only a cluster does sums with them."""

    cpu: str | None = None
    memory: str | None = None
    gpu: Gpu | None = None


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """All replicas of one role. A count of 0 may be written and is dropped before use."""

    role: str
    count: int
    resources: Resources = Resources()


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What the header of a cell asks for, and nothing else.

    ``None`` and empty values mean "not said": settings and defaults fill them in later, so
    that the header can be written again from the spec (:mod:`ciao_kernel.magics.render`).
    """

    framework: str
    groups: tuple[ReplicaGroup, ...] = ()
    resources: Resources = Resources()
    """For each replica of every role, unless its group says otherwise."""
    name: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    args: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    runner: Runner = Runner.AUTO
    nproc_per_node: int | None = None
    python: str | None = None
    backend: str | None = None
    builder: str | None = None
    clean_policy: CleanPolicy | None = None
    deadline: int | None = None
    """Seconds after which a job that still runs has failed."""
    detach: bool = False
    follow: tuple[str, ...] = ()
    """Roles (``worker``) or replicas (``worker-0``) whose lines are shown; empty: all."""
    dryrun: bool = False

    def replicas(self) -> tuple[Replica, ...]:
        """Every replica, in the order in which they are started and shown."""
        return tuple(Replica(g.role, i) for g in self.groups for i in range(g.count))

    def count(self, role: str) -> int:
        """How many replicas a role has; 0 where the job has no such role."""
        return sum(g.count for g in self.groups if g.role == role)

    def asks(self, role: str) -> Resources:
        """What one replica of a role asks for."""
        own = next((g.resources for g in self.groups if g.role == role), Resources())
        return Resources(
            cpu=own.cpu or self.resources.cpu,
            memory=own.memory or self.resources.memory,
            gpu=own.gpu or self.resources.gpu,
        )


# ----------------------------------------------------------------------- what is delivered


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file for the replicas: its place there, and its bytes or where they lie here."""

    path: str
    """Relative to the job's folder, with ``/``."""
    data: bytes | None = None
    origin: Path | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class Source:
    """The program and the files beside it, as every replica will find them."""

    entry: SourceFile
    modules: tuple[SourceFile, ...] = ()
    """Local Python modules that the program imports."""
    files: tuple[SourceFile, ...] = ()
    """What ``%files`` names."""
    imports: frozenset[str] = frozenset()
    """First names of all modules that the program and its local modules import."""

    def all(self) -> tuple[SourceFile, ...]:
        """The program first, then its modules, then the files."""
        return (self.entry, *self.modules, *self.files)


@dataclass(frozen=True, slots=True)
class Artifact:
    """What a builder made of a source: how the replicas get it and where it lies for them."""

    source: Source
    python: str
    """Interpreter, as the replica starts it."""
    workdir: str
    """The replica's working directory; the program lies in it."""
    env: tuple[tuple[str, str], ...] = ()

    @property
    def program(self) -> str:
        """Path of the program for the replica."""
        return f"{self.workdir}/{self.source.entry.path}"


# ----------------------------------------------------------------------------- what exists


class State(enum.StrEnum):
    """State of a job or of a replica."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"
    LOST = "Lost"

    @property
    def over(self) -> bool:
        """Whether nothing more can happen."""
        return self not in (State.PENDING, State.RUNNING)


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica at one moment. Times are seconds since the epoch."""

    replica: Replica
    state: State = State.PENDING
    since: float = 0.0
    exit_code: int | None = None
    """As the shell counts: negative is the number of the signal that killed it."""
    reason: str = ""
    log: str = ""
    """Where the whole output is kept, for a reader: a path, or an address."""


@dataclass(frozen=True, slots=True)
class Status:
    """A job at one moment.

    ``state`` is the job's condition. It can be over while some replicas still are not:
    ``settled`` is true once nothing more will come, neither lines nor states.
    """

    state: State
    replicas: tuple[ReplicaStatus, ...]
    since: float = 0.0
    reason: str = ""
    message: str = ""
    settled: bool = False
    decided_by: Replica | None = None
    """The replica whose end decided the job's."""


@dataclass(frozen=True, slots=True)
class Output:
    """What one replica wrote since the last such event.

    ``data`` holds whole lines, each with its ``\\n`` (a last line without one comes when the
    replica is over). ``tail`` is the unfinished line that follows them, for a live view;
    it is not yet counted and comes again.
    """

    replica: Replica
    data: bytes
    lines: int
    tail: bytes = b""


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence for the user that is no log line."""

    text: str


Event = Output | Status | Notice


@dataclass(frozen=True, slots=True)
class Job:
    """A job that exists, as any kernel or terminal can find it again by its name."""

    name: str
    backend: str
    framework: str
    replicas: tuple[Replica, ...]
    created: float
    place: str = ""
    """Where its files are, for a reader: a folder, or a namespace."""
    program: str = ""
    """The program's path as it stands in a replica's traceback."""
    header: str = ""
    """The directives that ask for it, one a line."""
    owner: str = ""
    detached: bool = False


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


@dataclass(frozen=True, slots=True)
class Owner:
    """Who submits: a label for lists, and the process that a local job ends with."""

    label: str
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a cell leaves behind in ``_job``: enough to find the job's files from Python."""

    name: str
    state: State
    place: str
    replicas: tuple[ReplicaStatus, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder that the job ran in and wrote its files to (local jobs)."""
        return Path(self.place)


class Display(Protocol):
    """Where a session shows what happens. Two renderers: notebook and terminal."""

    def begin(self, job: Job, follow: tuple[str, ...]) -> None:
        """A job is about to be followed; ``follow`` names the roles and replicas to show."""

    def show(self, event: Event) -> None:
        """Take one event. Returns at once: what is shown is written a little later."""

    async def end(self) -> None:
        """Write all that was taken. Called once after each :meth:`begin`, also on errors."""


# ------------------------------------------------------------------------------- plug-ins


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


@dataclass(frozen=True, slots=True)
class Address:
    """Where the other replicas of a job reach one replica."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Builder(Protocol):
    """Makes a source available to replicas."""

    name: str
    backend: str
    """Name of the backend that runs what it builds."""

    async def build(self, source: Source, python: str, folder: Path, emit: Emit) -> Artifact:
        """Deliver the source and return how a replica finds it.

        Args:
            source: What to deliver.
            python: The replicas' interpreter.
            folder: The job's own folder on this machine; it exists.
            emit: Shows a sentence about a step that takes long.

        Raises:
            EnvironmentFault: There is no room or no right to write.
        """


Emit = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """What ``%dryrun`` shows of one replica."""

    replica: Replica
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...]


class Backend(Protocol):
    """Runs jobs somewhere. All methods may be called from any process of the same user."""

    name: str
    outlives_kernel: bool
    """Whether a job goes on when the kernel that made it ends, if no setting says otherwise."""

    def available(self) -> bool:
        """Whether ``auto`` may choose this backend here. Cheap, and asks nobody."""

    async def check(self, plan: Plan) -> None:
        """Raise what can be known to go wrong, before anything exists."""

    async def preview(self, plan: Plan) -> tuple[ReplicaPlan, ...]:
        """What :meth:`submit` would run; creates nothing."""

    async def submit(self, plan: Plan, builder: Builder, emit: Emit, *, outlive: bool) -> Job:
        """Build and start; the job exists when this returns, or nothing of it does.

        Args:
            plan: What to run; :meth:`check` has accepted it.
            builder: Makes the artifact.
            emit: Shows sentences about slow steps.
            outlive: The job goes on when ``plan.owner`` ends.
        """

    def follow(self, job: Job) -> AsyncIterator[Event]:
        """Yield all output from the start, and states as they change; ends when settled.

        Every line comes exactly once, and all of them before the last :class:`Status`.

        Raises:
            JobLost: What runs the job is gone.
        """

    async def stop(self, job: Job, reason: str) -> None:
        """End all replicas; returns when they have ended."""

    async def delete(self, job: Job) -> None:
        """Stop the job and remove what it left, its files included."""

    async def jobs(self) -> list[tuple[Job, Status]]:
        """Every job of this user that the backend knows, oldest first."""

    async def find(self, name: str) -> tuple[Job, Status]:
        """One job by its name.

        Raises:
            NoSuchJob: There is none.
        """

    async def log(self, job: Job, replica: Replica, *, last: int | None = None) -> bytes:
        """The output of one replica so far, or its last so many bytes."""
