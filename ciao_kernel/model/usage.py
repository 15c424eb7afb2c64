"""Memory, processors and GPUs that the replicas of a job use at one moment."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Memory, processors and GPUs of one replica; None: not known. Memory is in bytes."""

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
    awaited: bool = False
    """Whether the fault passes by itself: a metrics server needs a minute for a new pod."""


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Usage of some replicas, in the order in which they were asked for."""

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


def gpu_text(one: GpuUsage) -> str:
    """Return ``87 %, 11Gi of 80Gi``; a dash if nothing is known."""
    share = "" if one.share is None else f"{one.share:.0%}".replace("%", " %")
    memory = "" if one.memory is None else size_text(one.memory)
    if memory and one.total:
        memory += f" of {size_text(one.total)}"
    return ", ".join(part for part in (share, memory) if part) or "–"


def together(gpus: Sequence[GpuUsage]) -> GpuUsage:
    """Return the mean share of some GPUs, and the sum of their memory, where it is known of all."""
    shares = [one.share for one in gpus if one.share is not None]
    used = [one.memory for one in gpus if one.memory is not None]
    totals = [one.total for one in gpus if one.total is not None]
    return GpuUsage(
        sum(shares) / len(shares) if gpus and len(shares) == len(gpus) else None,
        sum(used) if gpus and len(used) == len(gpus) else None,
        sum(totals) if gpus and len(totals) == len(gpus) else None,
    )
