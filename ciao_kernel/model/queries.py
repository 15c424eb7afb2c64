"""Queries about existing jobs, and their results.

Commands send the queries, and backends answer them (:class:`ciao_kernel.plugins.Backend`).
No I/O.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

from ciao_kernel.model import Job, Manifest, Replica


@dataclass(frozen=True, slots=True)
class Where:
    """Scope of a search for jobs; empty fields mean the scope that the settings define."""

    context: str = ""
    namespace: str = ""
    everywhere: bool = False
    """Search all namespaces; :attr:`namespace` is then empty."""
    backend: str = ""
    """Name of the backend to ask; "" means all backends."""

    @classmethod
    def of(cls, job: Job) -> Where:
        """Return the scope that has one job: another backend or place may have its name too."""
        namespace = job.place if job.on_cluster else ""
        return cls(context=job.context, namespace=namespace, backend=job.backend)

    @property
    def is_explicit(self) -> bool:
        """Return whether the user named a context or a namespace; local jobs have neither."""
        return bool(self.context or self.namespace)


HERE = Where()


def _ignore(notice: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Selection of a part of a replica's log."""

    tail: int | None = None
    """Number of lines from the end; None means all lines."""
    previous: bool = False
    """Return the log of the run before the last restart."""
    timestamps: bool = False
    """Put the time before each line, in RFC 3339 format."""
    since: float = 0.0
    """Seconds since the epoch; older lines are left out, with the precision of the backend."""
    followed: bool = False
    """Leave out the lines that following the job shows as notices instead."""
    tell: Callable[[str], object] = field(default=_ignore, compare=False)
    """Receives a sentence if the answer may be older than the log, for example because its node
    cannot be reached."""


WHOLE_LOG = LogOptions()


def count_lines(data: bytes) -> int:
    """Return the number of lines of a log; its final line may lack a line feed."""
    return data.count(b"\n") + bool(data and not data.endswith(b"\n"))


def last_lines(data: bytes, number: int) -> bytes:
    """Return the last lines of a log; its final line may lack a line feed."""
    lines = data.split(b"\n")  # not splitlines(): progress bars are full of carriage returns
    ends = lines.pop() if not lines[-1] else None
    last = lines[max(0, len(lines) - number) :]
    return b"\n".join(last) + (b"\n" if last and ends is not None else b"")


@dataclass(frozen=True, slots=True)
class Streams:
    """Input and output of a command in a replica."""

    out: Callable[[bytes], object]
    err: Callable[[bytes], object]
    input: AsyncIterator[bytes] | None = None
    """Input of the command, up to its end; None means no input."""
    sizes: AsyncIterator[tuple[int, int]] | None = None
    """Columns and rows, at once and after each change; None means no terminal."""


# --------------------------------------------------------------------------------- answers


@dataclass(frozen=True, slots=True)
class Group:
    """Properties of the replicas of one role."""

    role: str
    replicas: int
    image: str = ""
    asks: str = ""
    """Resource requests of a replica, such as ``cpu=2 memory=4Gi``."""
    restart_policy: str = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition of a job, as reported by its controller. Times are seconds since the epoch."""

    type: str
    status: str
    reason: str
    since: float
    message: str


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """Event of the cluster about a job or a replica."""

    about: str
    """The object: ``pod/mnist-worker-0``."""
    kind: str
    """``Normal`` or ``Warning``."""
    reason: str
    message: str
    since: float
    """Time of the last occurrence."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Details:
    """Details of a job besides its status."""

    facts: tuple[tuple[str, str], ...] = ()
    groups: tuple[Group, ...] = ()
    pods: Mapping[Replica, str] = field(default_factory=dict)
    """The pod of each replica that has one."""
    conditions: tuple[Condition, ...] = ()
    cluster_events: tuple[ClusterEvent, ...] = ()
    """Oldest first."""
    missing: str = ""
    """A sentence about data that could not be fetched, with the reason."""
    manifest: Manifest | None = None
    """The job's object as stored on the API server; None if there is no API server."""
