"""A job that exists: its name and its places, whose it is, and what it leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ciao_kernel.model.replica import Replica
from ciao_kernel.model.status import ReplicaStatus, State


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
