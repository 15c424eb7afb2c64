"""CPU time of `ciao jobs` without a job, against the import of a common library.

CPU time and not the clock: nothing here waits, and other work of the machine does not count.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figure import Figure, median

RUNS = 21
LIMIT = 2.0


def measure() -> Iterator[Figure]:
    """Run both in turns, after a first run of each that only fills Python's caches."""
    commands = {
        "ciao": [str(Path(sys.executable).with_name("ciao")), "jobs"],
        "requests": [sys.executable, "-c", "import requests"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as storage:
        env = {**os.environ, "CIAO_STORAGE": storage, "KUBECONFIG": ""}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # without a cache, compiling takes most of it
        for _ in range(RUNS + 1):
            for name, command in commands.items():
                start = _used()
                subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
                seconds[name].append(_used() - start)
    ours, peer = (median(values[1:]) for values in seconds.values())
    yield Figure(
        "ciao jobs, no job: CPU",
        ours,
        "python -c 'import requests'",
        peer,
        "s",
        f"at most {LIMIT}x",
        ours <= LIMIT * peer,
    )


def _used() -> float:
    """CPU seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
