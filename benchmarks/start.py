"""Start and size of the kernel, against python3's."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import psutil

from benchmarks.figure import Figure, median
from benchmarks.kernels import started

RUNS = 21


def measure() -> Iterator[Figure]:
    """Start both kernels in turns; then import times."""
    seconds: dict[str, list[float]] = {"ciao": [], "python3": []}
    memory: dict[str, list[float]] = {"ciao": [], "python3": []}
    for _ in range(RUNS):
        for name in seconds:
            with started(name) as (manager, client, took):
                seconds[name].append(took)
                client.execute_interactive("one = 1", timeout=30)
                time.sleep(0.3)
                memory[name].append(_size(manager.provisioner.pid))
    for what, unit, values, limit in (
        ("kernel start to kernel_info", "s", seconds, 1.1),
        ("idle memory", "MB", memory, 1.15),
    ):
        ours, peer = median(values["ciao"]), median(values["python3"])
        goal = f"at most {limit}x"
        yield Figure(what, ours, "python3 kernel", peer, unit, goal, ours <= limit * peer)
    ours, peer = _import_time("ciao_kernel"), _import_time("ipykernel")
    yield Figure(
        "import ciao_kernel", ours, "import ipykernel", peer, "ms", "at most 1x", ours <= peer
    )


def _size(pid: int) -> float:
    """Memory that only this process uses, and its share of the rest."""
    info = psutil.Process(pid).memory_full_info()
    return float(getattr(info, "pss", info.uss)) / 1e6


def _import_time(module: str) -> float:
    """Milliseconds that an import takes in a fresh interpreter, its own work alone."""
    code = (
        "import time; a = time.perf_counter(); import MODULE; "
        "print((time.perf_counter() - a) * 1000)"
    ).replace("MODULE", module)
    runs = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
        for _ in range(15)
    ]
    return median(runs)
