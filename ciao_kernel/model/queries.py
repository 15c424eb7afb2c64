"""What is asked about jobs that exist, and what is answered.

The verbs ask, backends answer (:class:`ciao_kernel.plugins.Backend`). No I/O.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

from ciao_kernel.model import Manifest, Replica


@dataclass(frozen=True, slots=True)
class Where:
    """Where jobs are looked for; empty: where the settings say."""

    context: str = ""
    namespace: str = ""
    everywhere: bool = False
    """In all namespaces; :attr:`namespace` is empty then."""
    backend: str = ""
    """The one that is asked; "": all."""

    @property
    def said(self) -> bool:
        """Whether the user named a place: jobs of this machine lie in none."""
        return bool(self.context or self.namespace)


HERE = Where()


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Which part of a replica's log is asked for."""

    tail: int | None = None
    """Its last so many lines; None: all of them."""
    previous: bool = False
    """Of the run before the last restart."""
    timestamps: bool = False
    """With the time before each line, as RFC 3339 writes it."""
    since: float = 0.0
    """Seconds since the epoch; older lines are left out, as exactly as the place knows times."""


WHOLE_LOG = LogOptions()


def last_lines(data: bytes, number: int) -> bytes:
    """The last lines of a log, whose last one may lack its line feed."""
    lines = data.split(b"\n")  # and not splitlines: progress bars are full of carriage returns
    ends = lines.pop() if not lines[-1] else None
    kept = lines[max(0, len(lines) - number) :]
    return b"\n".join(kept) + (b"\n" if kept and ends is not None else b"")


@dataclass(frozen=True, slots=True)
class Streams:
    """What a command in a replica reads and writes."""

    out: Callable[[bytes], object]
    err: Callable[[bytes], object]
    input: AsyncIterator[bytes] | None = None
    """What it reads, up to its end; None: nothing."""
    sizes: AsyncIterator[tuple[int, int]] | None = None
    """Columns and rows, at once and after each change; None: it gets no terminal."""


# --------------------------------------------------------------------------------- answers


@dataclass(frozen=True, slots=True)
class Group:
    """What the replicas of one role are made of."""

    role: str
    replicas: int
    image: str = ""
    asks: str = ""
    """Its resources, ``cpu=2 memory=4Gi``."""
    restart_policy: str = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """What the operator says of a job. Times are seconds since the epoch."""

    type: str
    status: str
    reason: str
    since: float
    message: str


@dataclass(frozen=True, slots=True)
class Incident:
    """What happened to a job or to a replica: an event of the cluster."""

    about: str
    """The object: ``pod/mnist-worker-0``."""
    kind: str
    """``Normal`` or ``Warning``."""
    reason: str
    message: str
    since: float
    """When it happened last."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Details:
    """What a backend knows of a job beside its status."""

    facts: tuple[tuple[str, str], ...] = ()
    groups: tuple[Group, ...] = ()
    pods: Mapping[Replica, str] = field(default_factory=dict)
    """The pod of each replica that has one."""
    conditions: tuple[Condition, ...] = ()
    incidents: tuple[Incident, ...] = ()
    """The newest last."""
    missing: str = ""
    """What could not be asked for, and why, as a sentence."""
    manifest: Manifest | None = None
    """The job's object as the server has it; None where there is no server."""
