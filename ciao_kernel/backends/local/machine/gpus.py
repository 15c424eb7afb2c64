"""Assigns this machine's GPUs: each device belongs to at most one replica of one job."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections import Counter
from collections.abc import Collection, Mapping

from ciao_kernel.errors import NoRoom, SpecError
from ciao_kernel.model import JobSpec, Replica

NVIDIA = "nvidia.com/gpu"


def installed() -> tuple[str, ...]:
    """Return the devices that this process may use, as named in CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        # As in CUDA, the first invalid name ends the list: -1 hides all devices after it.
        names = [part.strip() for part in visible.split(",")]
        return tuple(itertools.takewhile(lambda name: name and not name.startswith("-"), names))
    try:
        answer = subprocess.run(
            ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    # Without a device, the output may be a sentence.
    return tuple(line.strip() for line in answer.stdout.splitlines() if line.strip().isdigit())


def wanted(spec: JobSpec) -> int:
    """Return the number of devices that a job asks for in total.

    Raises:
        SpecError: The job asks for devices that only a cluster can provide.
    """
    total = 0
    for group in spec.groups:
        gpu = spec.asks(group.role).gpu
        if gpu is None:
            continue
        if gpu.resource != NVIDIA:
            raise SpecError(
                f"only NVIDIA GPUs are supported on this machine, not {gpu.resource}.",
                "Write %gpu=1 here, or run the cell on a cluster.",
                directive="gpu",
            )
        total += gpu.count * group.count
    return total


def check(total: int, devices: Collection[str], taken: Mapping[str, str]) -> None:
    """Check that so many devices are free.

    Args:
        total: Number of devices that a job asks for.
        devices: The devices of this machine.
        taken: The job of each device that is used.

    Raises:
        NoRoom: The others are used by jobs.
        SpecError: The machine has fewer.
    """
    if total > len(devices):
        have = "none" if not devices else _count(len(devices))
        raise SpecError(
            f"the job asks for {_count(total)} in all, and this machine has {have}.",
            "Ask for fewer, or run the cell on a cluster.",
            directive="gpu",
        )
    held = Counter(taken[device] for device in devices if device in taken)
    free = len(devices) - held.total()
    if total > free:
        raise NoRoom(
            f"the job asks for {_count(total)}, and {free} of {len(devices)} are free: "
            f"the others are used by {', '.join(sorted(held))}.",
            "Wait for that job, or stop it with `%ciao delete NAME`.",
            directive="gpu",
            holders=[job for job, count in held.items() if free + count >= total],
        )


def _count(number: int) -> str:
    return "1 GPU" if number == 1 else f"{number} GPUs"


def share(
    spec: JobSpec, devices: Collection[str], taken: Collection[str]
) -> dict[Replica, tuple[str, ...]]:
    """Return the devices of each replica; empty if the job has no %gpu."""
    if all(spec.asks(group.role).gpu is None for group in spec.groups):
        return {}
    pool = iter(device for device in devices if device not in taken)
    shares = {}
    for replica in spec.replicas():
        gpu = spec.asks(replica.role).gpu
        shares[replica] = tuple(next(pool) for _ in range(gpu.count if gpu else 0))
    return shares
