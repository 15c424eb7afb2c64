"""Reading what 64 local replicas use, against psutil: for `ciao top`."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Callable

import psutil

from benchmarks.figure import Figure, median
from ciao_kernel.backends.local import processes
from ciao_kernel.backends.local.inspection import usage

_REPLICAS = 64
_ROUNDS = 15


def measure() -> list[Figure]:
    """Processor time, memory and peak of 64 processes; and the search for them in /proc."""
    mark = secrets.token_hex(8)
    started = [
        subprocess.Popen(
            ["sleep", "600"],
            env={**os.environ, processes.MARK: mark, "CIAO_REPLICA": f"worker-{number}"},
        )
        for number in range(_REPLICAS)
    ]
    try:
        pids = [one.pid for one in started]
        found = processes.by_replica(mark)
        assert sorted(found) == sorted(f"worker-{number}" for number in range(_REPLICAS))
        return [
            _compared(
                "reading 64 replicas of this machine",
                lambda: usage.read(pids),
                lambda: [_read(pid) for pid in pids],
            ),
            _compared(
                "finding their processes, with children",
                lambda: processes.by_replica(mark),
                lambda: _find(mark),
            ),
        ]
    finally:
        for one in started:
            one.kill()
            one.wait()


def _compared(what: str, ours: Callable[[], object], peers: Callable[[], object]) -> Figure:
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(_ROUNDS):
        for times, work in zip(taken, (ours, peers), strict=True):
            began = time.perf_counter()
            work()
            times.append((time.perf_counter() - began) * 1000)
    own, other = map(median, taken)
    return Figure(what, own, "psutil", other, "ms", "< 1", own < other)


def _read(pid: int) -> tuple[object, ...]:
    process = psutil.Process(pid)
    with process.oneshot():
        return process.cpu_times(), process.memory_info()  # without the peak, which it lacks


def _find(mark: str) -> list[psutil.Process]:
    roots = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(processes.MARK) == mark:
                roots.append(process)
        except psutil.Error:
            continue
    parents = {one.pid: one.info["ppid"] for one in psutil.process_iter(["ppid"])}
    own = {process.pid for process in roots}
    while more := {pid for pid, parent in parents.items() if parent in own and pid not in own}:
        own |= more
    return [psutil.Process(pid) for pid in own if psutil.pid_exists(pid)]
