"""An existing job: its name, its locations, its owner and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ciao_kernel.errors import JobError
from ciao_kernel.model.replica import Replica
from ciao_kernel.model.status import ReplicaStatus, State, Status


@dataclass(frozen=True, slots=True)
class Job:
    """An existing job; every kernel and terminal can find it again by its name."""

    name: str
    backend: str
    framework: str
    replicas: tuple[Replica, ...]
    created: float
    place: str = ""
    """Location of the job, for display: the folder of its files, or a namespace."""
    program: str = ""
    """Path of the program, as shown in a replica's traceback."""
    header: str = ""
    """The directives of the job, one per line."""
    plot: tuple[str, ...] = ()
    """Metrics that displays draw (``%plot``)."""
    lines: int | None = None
    """First and last lines of each replica that displays keep (``%lines``); None: not given."""
    grace: int | None = None
    """Seconds that its replicas may take to end (``%grace``); None: the setting."""
    retries: int = 0
    """How often it is started again after the loss of a replica (``%retries``)."""
    tries: int = 1
    """Number of this try: 2 if it was started again once."""
    owner: str = ""
    detached: bool = False
    made_of: tuple[tuple[str, str], ...] = ()
    """Names and values that describe its source: a digest, the commit of its repository."""
    kind_of_place: str = "folder"
    context: str = ""
    """Context of the cluster, if there are several clusters."""
    resource: str = ""
    """Resource name of the job in API paths, such as ``tfjobs``."""
    uid: str = ""
    """Distinguishes the job from a later job with the same name."""
    first_uid: str = ""
    """The :attr:`uid` of its first try; "" if this is the first."""
    run: str = ""
    """Unique identifier of the submission, for pods that do not name the job's uid."""
    folder: str = ""
    """Folder of its files on this machine; "" if that folder is :attr:`place`."""
    options: str = ""
    """Options that a command needs, besides the name, to find the job: ``--namespace team-b``."""
    logs_kept: bool = True
    """False if its log files are removed at its end (``%cleanPolicy=all``)."""
    warm_run: int = 0
    """Number of the run in replicas that are kept for the next one; 0 for any other job."""
    root: str = ""
    """Working directory of the replicas; "" if that is the program's folder."""

    @property
    def reference(self) -> str:
        """Name and options for a command: ``%ciao attach REFERENCE`` works when pasted."""
        return f"{self.name} {self.options}" if self.options else self.name

    @property
    def files(self) -> str:
        """The job's folder on this machine."""
        return self.folder or self.place

    @property
    def results(self) -> str:
        """The folder on this machine for what its replicas give back: that of a run is its own."""
        if not self.warm_run:
            return self.files
        return f"{self.files}/run-{self.warm_run}" if self.on_cluster else self.place

    @property
    def identity(self) -> str:
        """Distinguishes the job, over all its tries, from a later job with the same name."""
        return self.first_uid or self.uid

    @property
    def on_cluster(self) -> bool:
        """True if the replicas are pods, False if they are processes of a machine."""
        return self.kind_of_place != "folder"

    @property
    def workdir(self) -> str:
        """Working directory of the replicas, as a path in the replica."""
        return self.root or self.program.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Owner:
    """Owner of a job: a label for lists, and the process whose end also ends a local job."""

    label: str
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class JobResult:
    """Result of a cell: its job, and the last status that the cell has seen."""

    job: Job
    status: Status
    error: JobError | None = field(default=None, repr=False, compare=False)
    """The error that the cell ended with, if the job did not succeed."""

    @property
    def name(self) -> str:
        """Name of the job."""
        return self.job.name

    @property
    def state(self) -> State:
        """State of the job when its cell ended."""
        return self.status.state

    @property
    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """The replicas when the cell ended; empty if the cell did not wait for them."""
        return self.status.replicas

    @property
    def folder(self) -> Path:
        """Folder on this machine: of a local job, or the logs and files of a cluster job.

        A run in warm replicas has its own.
        """
        return Path(self.job.results)
