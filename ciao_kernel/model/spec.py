"""What the header of a cell asks for: a :class:`JobSpec`, and the values that it is made of."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields

from ciao_kernel.model.replica import Replica


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


class Runner(enum.StrEnum):
    """What starts the cell in a replica."""

    AUTO = "auto"
    PYTHON = "python"
    TORCHRUN = "torchrun"


class CleanPolicy(enum.StrEnum):
    """What goes when the job is over; the names are the training operator's, in lower case."""

    RUNNING = "running"
    ALL = "all"
    NONE = "none"


class DryRun(enum.StrEnum):
    """Whether a run is only shown; false where it is a run."""

    NO = "false"
    SHOW = "true"
    SERVER = "server"
    """The API server is asked too whether it would take the job."""

    def __bool__(self) -> bool:
        return self is not DryRun.NO


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
    runner: Runner | None = None
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
