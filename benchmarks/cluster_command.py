"""`ciao jobs` on a cluster, against `kubectl get` of the same kind, by the clock and in CPU time.

Both are new processes, which ask the same server for an empty list.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import clusters
from benchmarks.clusters import Place
from benchmarks.figure import Figure, median

RUNS = 15
MOST, TIMES = 0.4, 4.0
"""Seconds by the clock, and times the processor time of kubectl."""


def measure() -> Iterator[Figure]:
    """Run both in turns, after a first run of each that only fills caches."""
    with clusters.place("bench-command") as at, tempfile.TemporaryDirectory() as storage:
        if at is None:
            return
        runs = [_run(at, Path(storage)) for _ in range(RUNS + 1)][1:]
    what, peer = "ciao jobs on a cluster, no job", "kubectl get tfjobs"
    (took, theirs), (used, by_them) = (
        [median([one[who][number] for one in runs]) for who in (0, 1)] for number in (0, 1)
    )
    yield Figure(what, took, peer, theirs, "s", f"at most {MOST} s", took <= MOST)
    goal = f"at most {TIMES:.0f}x"
    yield Figure(f"{what}: CPU", used, peer, by_them, "s", goal, used <= TIMES * by_them)


def _run(at: Place, storage: Path) -> tuple[tuple[float, float], tuple[float, float]]:
    env = {**os.environ, **at.environment, "CIAO_STORAGE": str(storage)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # without a cache, compiling takes most of it
    return _took(at.ciao("jobs"), env), _took(at.kubectl("get", "tfjobs"), env)


def _took(command: Sequence[str], env: Mapping[str, str]) -> tuple[float, float]:
    """Seconds by the clock, and of processor."""
    began = time.perf_counter()
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=env, stdout=quiet, stderr=quiet)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return time.perf_counter() - began, used.ru_utime + used.ru_stime
