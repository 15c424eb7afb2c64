"""Assigns this machine's GPUs: each device belongs to at most one replica of one job."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ciao_kernel.errors import NoRoom, SpecError
from ciao_kernel.model import JobSpec, Replica
from ciao_kernel.visible_text import counted, visible

NVIDIA = "nvidia.com/gpu"
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Variable that names the devices of a process."""
_NVIDIA_SMI = "nvidia-smi"
_ORDER = "CUDA_DEVICE_ORDER"
_OF_NVIDIA_SMI = "PCI_BUS_ID"
_PATIENCE = 20.0
"""Seconds in which nvidia-smi answers, unless its driver hangs."""
_PATIENCE_FOR_MORE = 2.0
"""The same where the devices are known without it."""
_AFTER_UPDATE = "After an update of the driver, restart the machine"


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices that this process may use."""

    names: tuple[str, ...] = ()
    """As in CUDA_VISIBLE_DEVICES."""
    order: str = ""
    """The CUDA_DEVICE_ORDER in which the names are counted; "" for that of the environment."""
    fault: str = ""
    """The words with which nvidia-smi has listed none; "" if it was not asked, or is missing."""
    uuids: Mapping[str, str] = field(default_factory=dict)
    """The UUIDs by name, if nvidia-smi tells: each Slurm allocation has another device 0."""

    def variables(self, share: Collection[str]) -> dict[str, str]:
        """Return the variables of a replica that gets some of them.

        One without a device gets their order too: mpirun passes its variables on to ranks that
        have devices.
        """
        order = {_ORDER: self.order} if self.order else {}
        return {VISIBLE: ",".join(share), **order}


def installed(patience: float = _PATIENCE) -> Devices:
    """Return the devices that this process may use.

    Args:
        patience: Seconds to wait for nvidia-smi.
    """
    visible = os.environ.get(VISIBLE)
    if visible is None:
        return _listed(patience)
    # As in CUDA, the first invalid name ends the list: -1 hides all devices after it.
    parts = [part.strip() for part in visible.split(",")]
    names = tuple(itertools.takewhile(lambda name: name and not name.startswith("-"), parts))
    program = shutil.which(_NVIDIA_SMI) if names else None
    known = _uuids(program, min(patience, _PATIENCE_FOR_MORE)) if program else {}
    found = {name: _uuid(name, known) for name in names}
    return Devices(names, uuids={name: uuid for name, uuid in found.items() if uuid})


@functools.lru_cache
def _uuids(program: str, patience: float) -> Mapping[str, str]:
    """Return the UUIDs by index, asked once: no job waits for that again."""
    return _listed(patience, program).uuids


def _listed(patience: float, program: str = _NVIDIA_SMI) -> Devices:
    """Return the devices that nvidia-smi lists."""
    try:
        answer = subprocess.run(
            [program, "--query-gpu=index,uuid", "--format=csv,noheader"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=patience,
            check=False,
        )
    except OSError:
        return Devices()
    except subprocess.TimeoutExpired:
        return Devices(fault=f"it gave no answer in {patience:.0f} s")
    lines = [line.strip() for line in answer.stdout.splitlines() if line.strip()]
    # Without a device, the output may be a sentence.
    rows = [line.partition(",") for line in lines if line.partition(",")[0].isdigit()]
    if answer.returncode or not rows:
        words = [line for line in lines if not line.partition(",")[0].isdigit()]
        fault = words[0] if words else f"it ended with exit code {answer.returncode}"
        return Devices(fault=visible(fault.rstrip(".")))
    return Devices(
        tuple(index for index, _, _ in rows),
        # CUDA counts the fastest device first unless it is told to count as nvidia-smi does.
        "" if _ORDER in os.environ else _OF_NVIDIA_SMI,
        # It may answer "[N/A]".
        uuids={index: uuid.strip() for index, _, uuid in rows if uuid.strip().startswith("GPU-")},
    )


def _uuid(name: str, known: Mapping[str, str]) -> str:
    """Return the UUID of a device by its index or the begin of its UUID; "" if it is not known."""
    if name.isdigit():
        return known.get(name, "")
    meant = [uuid for uuid in known.values() if uuid.startswith(name)]
    return meant[0] if len(meant) == 1 else ""


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
                "Write %gpu=1 here, or run the job on a cluster.",
                directive="gpu",
            )
        total += gpu.count * group.count
    return total


def check(total: int, devices: Devices, taken: Mapping[str, str]) -> None:
    """Check that so many devices are free.

    Args:
        total: Number of devices that a job asks for.
        devices: The devices of this machine.
        taken: The job of each device that is used.

    Raises:
        NoRoom: The others are used by jobs.
        SpecError: The machine has fewer, or cannot list them.
    """
    names, asked = devices.names, counted(total, "GPU")
    if devices.fault and not names:
        raise SpecError(
            f"the job asks for {asked} in all, and nvidia-smi lists none of this machine: "
            f"{devices.fault}.",
            f"{_AFTER_UPDATE if 'mismatch' in devices.fault else 'Look at `nvidia-smi`'}, or run "
            "the job on a cluster.",
            directive="gpu",
        )
    if total > len(names):
        have = "none" if not names else counted(len(names), "GPU")
        raise SpecError(
            f"the job asks for {asked} in all, and this machine has {have}.",
            "Ask for fewer, or run the job on a cluster.",
            directive="gpu",
        )
    held = Counter(taken[name] for name in names if name in taken)
    free = len(names) - held.total()
    if total > free:
        raise NoRoom(
            f"the job asks for {asked}, and {free} of {len(names)} are free: "
            f"the others are used by {', '.join(sorted(held))}.",
            "Wait for that job, or stop it with `%ciao delete NAME`.",
            directive="gpu",
            holders=[job for job, count in held.items() if free + count >= total],
        )


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
