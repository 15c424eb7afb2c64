"""What the replicas of a job use at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from ciao_kernel.model.replica import Replica

_UNITS = (("Ti", 1024**4), ("Gi", 1024**3), ("Mi", 1024**2), ("Ki", 1024))


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """One GPU of a replica; None: not known."""

    share: float | None = None
    """Part of the time in which it computes, from 0 to 1."""
    memory: int | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What the processes of one replica use; None: not known. Memory is in bytes."""

    replica: Replica
    cpu: float | None = None
    """Processors that it keeps busy."""
    memory: int | None = None
    """Memory in use, without the part of the file cache that would be given up first."""
    peak: int | None = None
    """The highest value so far; in a pod with its file cache."""
    limit: int | None = None
    """The memory at which the replica is killed."""
    gpus: tuple[GpuUsage, ...] = ()
    fault: str = ""
    """Why nothing is known, as a phrase: ``it is Pending``."""


@dataclass(frozen=True, slots=True)
class UsageReport:
    """What some replicas use, in the order in which they were asked for."""

    replicas: tuple[Usage, ...]
    remark: str = ""
    """Sentences about where the numbers come from."""


def size_text(number: float) -> str:
    """Return a number of bytes as a quantity of Kubernetes with about three digits: ``244Mi``."""
    for unit, size in _UNITS:
        if number >= size:
            value = number / size
            return f"{value:.1f}{unit}" if value < 10 else f"{value:.0f}{unit}"
    return f"{number:.0f}"
