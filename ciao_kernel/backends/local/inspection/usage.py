"""Memory and processors that the processes of a local job use, from /proc."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ciao_kernel.backends.local import hosts, processes
from ciao_kernel.backends.local.inspection.gpu_readings import GpuReadings
from ciao_kernel.backends.local.inspection.running import RunningJob
from ciao_kernel.backends.local.record import Folder
from ciao_kernel.model import Replica
from ciao_kernel.model.usage import Usage, UsageReport, size_text

_APART = 0.5
"""Seconds between the two readings that tell how busy the processors are."""
_SHARED = "Memory that several processes share counts in each of them."


@dataclass(slots=True)
class Reading:
    """Memory and processor time of the living processes of a replica."""

    memory: int = 0
    peak: int = 0
    seconds: dict[tuple[int, str], float] = field(default_factory=dict)
    """Processor time so far of each process, by its number and start."""


async def usage(folder: Folder, host: hosts.Host, replicas: Sequence[Replica]) -> UsageReport:
    """Return what the processes of some replicas use.

    Raises:
        UsageError: The job runs on another machine.
        NoSuchJob: Its folder is gone.
    """
    job = await asyncio.to_thread(RunningJob, folder, host)
    found = await asyncio.to_thread(processes.by_replica, job.id)
    began, first = await asyncio.to_thread(_read_all, found)
    await asyncio.sleep(_APART)  # here, and not in a thread: a process waits for its threads
    ended, last = await asyncio.to_thread(_read_all, found)
    return await asyncio.to_thread(
        _report, job, replicas, found, first, last, max(_APART, ended - began)
    )


def _read_all(found: Mapping[str, list[int]]) -> tuple[float, dict[str, Reading]]:
    return time.monotonic(), {name: read(pids) for name, pids in found.items()}


def _report(
    job: RunningJob,
    replicas: Sequence[Replica],
    found: Mapping[str, list[int]],
    first: Mapping[str, Reading],
    last: Mapping[str, Reading],
    elapsed: float,
) -> UsageReport:
    gpus = GpuReadings()
    rows = []
    for replica in replicas:
        name = str(replica)
        now = last.get(name)
        if now is None or not now.seconds:
            rows.append(Usage(replica, fault=job.fault(replica)))
            continue
        before = first[name].seconds
        busy = sum(now.seconds[one] - before.get(one, now.seconds[one]) for one in now.seconds)
        shown = gpus.of(found[name])
        rows.append(Usage(replica, max(0.0, busy) / elapsed, now.memory, now.peak, gpus=shown))
    several = any(len(one.seconds) > 1 for one in last.values())
    remarks = [_machine(), _SHARED if several else "", gpus.remark()]
    return UsageReport(tuple(rows), " ".join(filter(None, remarks)))


def read(pids: Iterable[int]) -> Reading:
    """Return what some processes use; one that has ended counts as nothing."""
    total = Reading()
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
            status = Path(f"/proc/{pid}/status").read_bytes()
        except OSError:
            continue
        fields = stat[stat.rindex(b")") + 2 :].split()
        memory = _kibibytes(status, b"VmRSS:")
        if fields[0] in (b"Z", b"X") or memory is None:
            continue
        ticks = int(fields[11]) + int(fields[12])
        total.seconds[pid, fields[19].decode()] = ticks / os.sysconf("SC_CLK_TCK")
        total.memory += memory
        total.peak += _kibibytes(status, b"VmHWM:") or memory
    return total


def _kibibytes(status: bytes, name: bytes) -> int | None:
    at = status.find(b"\n" + name)
    return int(status[at + 1 + len(name) :].split(None, 1)[0]) * 1024 if at >= 0 else None


def _machine() -> str:
    """Return a sentence about the machine, or the container, that all replicas share."""
    from ciao_kernel.delivery.inspection import usage_reader

    sizes = {}
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            sizes[name] = int(rest.split()[0]) * 1024
    total, free = sizes.get("MemTotal"), sizes.get("MemAvailable")
    if total is None or free is None:
        return ""
    text = f"All replicas share this machine: {size_text(free)} of {size_text(total)} are available"
    own = usage_reader.sample()
    if (limit := own.get("limit", total)) < total and "memory" in own:
        text += f"; its container uses {size_text(own['memory'])} of {size_text(limit)}"
    return f"{text}."
