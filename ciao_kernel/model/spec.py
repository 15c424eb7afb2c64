"""Contents of a cell's header: a :class:`JobSpec`, and the values of its fields."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from ciao_kernel.model.build_spec import BuildSpec
from ciao_kernel.model.checkpoint import Checkpoint
from ciao_kernel.model.cluster_spec import ClusterSpec
from ciao_kernel.model.outputs import OUTPUT_WAY, OutputWay, event_files, output_paths
from ciao_kernel.model.replica import Replica
from ciao_kernel.model.volume import Volume

ALL_LINES = 10**9
"""Number of lines that means all of them."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A number of devices with one Kubernetes resource name."""

    count: int
    resource: str = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Resources:
    """Resource requests of one replica. Quantities stay text: only a cluster adds them up."""

    cpu: str | None = None
    memory: str | None = None
    gpu: Gpu | None = None


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """All replicas of one role. A count of 0 is allowed; the group is removed before use."""

    role: str
    count: int
    resources: Resources = Resources()
    volumes: tuple[Volume, ...] = ()
    """Folders with data from outside that only these replicas have."""


class Runner(enum.StrEnum):
    """Launcher of the cell in a replica."""

    AUTO = "auto"
    PYTHON = "python"
    TORCHRUN = "torchrun"


class CleanPolicy(enum.StrEnum):
    """Cleanup after a job's end; the names are the training operator's, in lower case."""

    RUNNING = "running"
    ALL = "all"
    NONE = "none"


class DryRun(enum.StrEnum):
    """Mode of a dry run; :attr:`NO` means a real run and is false."""

    NO = "false"
    SHOW = "true"
    SERVER = "server"
    """Also ask the API server whether it would accept the job."""

    def __bool__(self) -> bool:
        return self is not DryRun.NO


@dataclass(frozen=True, slots=True)
class JobSpec:
    """Contents of a cell's header, and nothing else.

    ``None`` and empty values mean "not given". Settings and defaults fill them in later, so the
    header can be written again from the spec (:mod:`ciao_kernel.magics.render`).
    """

    framework: str
    groups: tuple[ReplicaGroup, ...] = ()
    resources: Resources = Resources()
    """Defaults for each replica of every role; the values of a group take precedence."""
    name: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    args: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    """Words of the command that runs a program in any language; ``{cell}`` is the cell's file."""
    files: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    """Variables of the notebook that are delivered as files."""
    outputs: tuple[str, ...] = ()
    """Variables of the program whose values come back at its end, and paths of its files."""
    volumes: tuple[Volume, ...] = ()
    """Folders with data from outside that all replicas have."""
    checkpoint: Checkpoint | None = None
    """Place of a folder that outlives the job."""
    grace: int | None = None
    """Seconds from SIGTERM to SIGKILL; None: the setting."""
    retries: int | None = None
    """How often the job is started again after the loss of a replica."""
    serve: tuple[str, ...] = ()
    """Roles that run the framework's own server instead of the cell."""
    runner: Runner | None = None
    nproc_per_node: int | None = None
    slots: int | None = None
    """Ranks of each worker of an MPI job."""
    min_workers: int | None = None
    """Fewest workers with which an elastic PyTorch job goes on."""
    max_workers: int | None = None
    """Most workers of an elastic PyTorch job."""
    python: str | None = None
    backend: str | None = None
    builder: str | None = None
    clean_policy: CleanPolicy | None = None
    deadline: int | None = None
    """Seconds after which a job that is still running fails."""
    detach: bool = False
    warm: int | None = None
    """Seconds for which the replicas wait for the next run after each run; None: they end."""
    follow: tuple[str, ...] = ()
    """Roles (``worker``) or replicas (``worker-0``) whose lines are shown; empty means all."""
    plot: tuple[str, ...] = ()
    """Names of the metrics in the log to draw."""
    tensorboard: str | None = None
    """Folder beside the program whose event files TensorBoard shows."""
    lines: int | None = None
    """First and last lines of each replica that a cell keeps; :data:`ALL_LINES`: all lines."""
    usage: str | None = None
    """``on`` or ``off``: whether the table shows what the replicas use."""
    inspect: str | None = None
    """``on`` or ``off``: whether the replicas get the handler that answers where they stand."""
    on_error: int | None = None
    """Seconds for which a program that fails is kept at its error, with a prompt; None: not."""
    dryrun: DryRun = DryRun.NO
    cluster: ClusterSpec = ClusterSpec()
    build: BuildSpec = BuildSpec()

    @property
    def output_names(self) -> tuple[str, ...]:
        """Return the variables whose values come back."""
        return tuple(word for word in self.outputs if word.isidentifier())

    @property
    def output_paths(self) -> tuple[str, ...]:
        """Return the paths, relative to the program's folder, whose files come back."""
        return output_paths(self.outputs)

    @property
    def output_ways(self) -> tuple[OutputWay, ...]:
        """Return the ways that ``%output`` names."""
        words = (word for word in self.outputs if word.startswith(OUTPUT_WAY))
        return tuple(OutputWay(word.removeprefix(OUTPUT_WAY)) for word in words)

    @property
    def kept_paths(self) -> tuple[str, ...]:
        """Return the paths whose files a pod keeps at its end: those that come back."""
        events = () if self.tensorboard is None else (event_files(self.tensorboard),)
        return (*self.output_paths, *events)

    @property
    def elastic(self) -> bool:
        """Return whether the number of workers may change while the job runs."""
        return self.min_workers is not None or self.max_workers is not None

    @property
    def restart_limit(self) -> int | None:
        """Return the number of restarts of replicas that fails the job; None: no limit.

        ``backoff_limit`` of an elastic job counts the restarts that torchrun makes in a replica.
        """
        return None if self.elastic else self.cluster.backoff_limit

    def replicas(self) -> tuple[Replica, ...]:
        """Return all replicas, in the order in which they are started and shown."""
        return tuple(Replica(g.role, i) for g in self.groups for i in range(g.count))

    def count(self, role: str) -> int:
        """Return the number of replicas of a role; 0 if the job lacks the role."""
        return sum(g.count for g in self.groups if g.role == role)

    def volumes_of(self, role: str) -> tuple[Volume, ...]:
        """Return the volumes of the replicas of a role: those of the job, then its own."""
        return (*self.volumes, *(one for g in self.groups if g.role == role for one in g.volumes))

    @property
    def all_volumes(self) -> tuple[Volume, ...]:
        """Return the volumes of all replicas, each once."""
        own = (one for group in self.groups for one in group.volumes)
        return tuple(dict.fromkeys((*self.volumes, *own)))

    @property
    def shared_volumes(self) -> tuple[Volume, ...]:
        """Return the volumes that every replica has."""
        by_role = [self.volumes_of(group.role) for group in self.groups]
        return tuple(one for one in self.all_volumes if all(one in own for own in by_role))

    def seen_by(self, role: str) -> JobSpec:
        """Return the spec with the volumes of a role's replicas as those of the job."""
        groups = tuple(replace(group, volumes=()) for group in self.groups)
        return replace(self, groups=groups, volumes=self.volumes_of(role))

    def asks(self, role: str) -> Resources:
        """Return the resource requests of one replica of a role."""
        own = next((g.resources for g in self.groups if g.role == role), Resources())
        return Resources(
            cpu=own.cpu or self.resources.cpu,
            memory=own.memory or self.resources.memory,
            gpu=own.gpu or self.resources.gpu,
        )
