"""The values that travel from one step of a cell to the next.

::

    text ─ magics.parse ─► JobSpec + code ─ workspace ─► Source ─ builder ─► Artifact
         ─ framework + backend ─► Job ─ follow ─► Event … ─► display

Standard library only, no I/O. The contracts of those who take and return these values are in
:mod:`ciao_kernel.plugins`.
"""

from __future__ import annotations

import enum
import signal
from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

Manifest = dict[str, Any]
"""A Kubernetes object or a part of one, as JSON has it."""

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

    def chosen(self, names: Collection[str]) -> bool:
        """Whether a list of roles and replicas means this one; an empty list means all."""
        return not names or self.role in names or str(self) in names


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


class RestartPolicy(enum.StrEnum):
    """What the training operator does with a replica that ended badly."""

    NEVER = "Never"
    ON_FAILURE = "OnFailure"
    ALWAYS = "Always"
    EXIT_CODE = "ExitCode"


class SuccessPolicy(enum.StrEnum):
    """Whose success is a TensorFlow job's."""

    WORKER_0 = "worker0"
    ALL_WORKERS = "allWorkers"


class DryRun(enum.StrEnum):
    """Whether a run is only shown; false where it is a run."""

    NO = "false"
    SHOW = "true"
    SERVER = "server"
    """The API server is asked too whether it would take the job."""

    def __bool__(self) -> bool:
        return self is not DryRun.NO


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """What binds on a cluster only; the local backend says so and goes on."""

    context: str | None = None
    namespace: str | None = None
    image: str | None = None
    env_secrets: tuple[str, ...] = ()
    """Secrets whose keys become environment variables."""
    service_account: str | None = None
    pull_secrets: tuple[str, ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[str, ...] = ()
    """As ``kubectl taint`` writes a taint: ``key=value:Effect``, ``key:Effect`` or ``key``."""
    priority_class: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    restart_policy: RestartPolicy | None = None
    backoff_limit: int | None = None
    ttl: int | None = None
    """Seconds after which a job that is over is deleted."""
    success_policy: SuccessPolicy | None = None


@dataclass(frozen=True, slots=True)
class BuildSpec:
    """What the replicas need beside the source; a builder brings it."""

    base: str | None = None
    """Image to begin with; else that of the job."""
    registry: str | None = None
    """Repository that gets the image: ``host/team/cells``."""
    packages: tuple[str, ...] = ()
    """As pip takes them."""
    requirements: str | None = None
    """A file of them, from the user's folder on."""
    pip_index: str | None = None
    apt: tuple[str, ...] = ()
    """Packages of the image's distribution."""
    conda_env: str | None = None
    """A file that conda makes an environment from, from the user's folder on."""
    dockerfile: str | None = None
    """A file that says how the environment is built."""
    s2i_builder: str | None = None
    """Image that brings the scripts of source-to-image."""
    push_secret: str | None = None
    """Secret with the passwords of registries, for the kernel and a pod that builds."""
    pip_secret: str | None = None
    """Secret with a ``pip.conf`` for a pod that builds."""

    @property
    def needed(self) -> bool:
        """Whether there is anything that has to be installed."""
        return bool(self.packages or self.requirements)

    @property
    def wishes(self) -> frozenset[str]:
        """Names of the fields that a builder has to bring; the others say where and how."""
        how = ("registry", "pip_index", "push_secret")
        names = [field.name for field in fields(self) if field.name not in how]
        return frozenset(name for name in names if getattr(self, name))


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
    inputs: tuple[str, ...] = ()
    """Variables of the notebook that become files."""
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
    plot: tuple[str, ...] = ()
    """Numbers of the log that are drawn."""
    dryrun: DryRun = DryRun.NO
    cluster: ClusterSpec = ClusterSpec()
    build: BuildSpec = BuildSpec()

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
    notes: tuple[str, ...] = ()
    """What the user should know of files that stay at home, a sentence each."""

    def all(self) -> tuple[SourceFile, ...]:
        """The program first, then its modules, then the files."""
        return (self.entry, *self.modules, *self.files)


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
    node: str = ""
    """The machine that it runs on, where there are several."""
    restarts: int = 0
    """How often it was started again."""


def exit_text(code: int) -> str:
    """Name an exit code as :class:`ReplicaStatus` counts it: ``exit code 1``, ``SIGKILL``."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


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
    hopeless: bool = False
    """It has not started and never will: whoever submitted it should remove it."""

    @property
    def over(self) -> bool:
        """Whether nothing of the job runs; under ``%cleanPolicy=none`` that may be later."""
        return self.settled and all(one.state.over for one in self.replicas)


@dataclass(frozen=True, slots=True)
class Output:
    """What one replica wrote since the last such event.

    ``data`` holds whole lines, each with its line feed (a last line without one comes when the
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
    """Where it is, for a reader: the folder of its files, or a namespace."""
    program: str = ""
    """The program's path as it stands in a replica's traceback."""
    header: str = ""
    """The directives that ask for it, one a line."""
    owner: str = ""
    detached: bool = False
    kind_of_place: str = "folder"
    context: str = ""
    """Which cluster, where there are several."""
    resource: str = ""
    """Its kind, as it stands in a path of the API: ``tfjobs``."""
    uid: str = ""
    """Tells it from a later job of the same name."""
    folder: str = ""
    """Where its files are on this machine; "" where :attr:`place` is that."""
    options: str = ""
    """What a command has to say beside the name to find it: ``--namespace team-b``."""

    @property
    def reference(self) -> str:
        """The words that name it in a command: ``%ciao attach REFERENCE`` works when pasted."""
        return f"{self.name} {self.options}" if self.options else self.name

    @property
    def files(self) -> str:
        """The folder on this machine that belongs to it."""
        return self.folder or self.place

    @property
    def workdir(self) -> str:
        """The folder that its replicas run in, as they see it."""
        return self.program.rpartition("/")[0]


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
        """What is on this machine: a local job's own folder, the logs of a cluster's job."""
        return Path(self.place)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the other replicas of a job reach one replica."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
