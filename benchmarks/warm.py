"""From an edited cell to its first line in warm replicas (``%warm``), and what they hold meanwhile.

Peers: the same cell without ``%warm``, and ``kubectl apply`` of its objects with a stern that waits
for them already. On this machine the program also imports numpy, on the cluster nothing: so the
cluster's figures are about pods, and those of this machine about the import. kubetorch, which keeps
pods too, is no peer here: it works only with its own controller, data store and log store in the
cluster, whose images are in a registry on the internet (ghcr.io/run-house): the tests' cluster
pulls nothing from there.

A parked replica may hold what its framework's import holds in a process of its own, and 25 MB.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import cluster_start, clusters
from benchmarks.clusters import JOB, Place
from benchmarks.figure import Figure, median
from ciao_kernel.config import Settings
from ciao_kernel.model import Owner
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from ciao_kernel.session.warm.pool import WarmPool

MOST_HERE, MOST_ON_CLUSTER = 200.0, 500.0
"""Milliseconds within which 95 of 100 edited cells show their first line, on a quiet machine."""
MOST_MORE = 25.0
"""Megabytes that a parked replica may hold beside its imports."""
IMPORTS = ("numpy", "torch", "tensorflow")
WARM_ROUNDS = 20
COLD_ROUNDS = 5
LOCAL = "%framework=python\n%worker=2\n%backend=local\n"
CLUSTER = f"%framework=tensorflow\n%worker=2\n%name={JOB}\n"


def measure() -> Iterator[Figure]:
    """On this machine, then on the cluster if one is up."""
    yield from asyncio.run(_local())
    for module in IMPORTS:
        if importlib.util.find_spec(module) is not None:
            yield asyncio.run(_parked(module))
    with clusters.place("bench-warm") as at:
        if at is not None:
            yield from asyncio.run(_cluster(at))


async def _local() -> list[Figure]:
    program = "import numpy\nprint('first', {0})\n"
    with tempfile.TemporaryDirectory() as storage:
        registry = Registry({})
        settings = Settings(storage=Path(storage))
        session = Session(registry, Owner("bench", os.getpid()), settings, None, WarmPool())
        cold = [
            await _first(session, LOCAL + program.format(number)) for number in range(COLD_ROUNDS)
        ]
        warm = await _reruns(session, LOCAL, program)
        await registry.close()
    what = "edited cell to first line, local"
    return [_figure(what, warm, "cold cell", cold), _p95(what, warm, MOST_HERE)]


async def _parked(module: str) -> Figure:
    """What an idle replica holds, agent and imports, against a process that only imports."""
    with tempfile.TemporaryDirectory() as storage:
        told = Path(storage) / "pid"
        registry = Registry({})
        settings = Settings(storage=Path(storage))
        session = Session(registry, Owner("bench", os.getpid()), settings, None, WarmPool())
        program = f"import {module}, os\nopen({str(told)!r}, 'w').write(str(os.getppid()))\n"
        await clusters.run(session, f"%framework=python\n%backend=local\n%warm\n{program}")
        zygote = told.read_text()
        agent = Path(f"/proc/{zygote}/stat").read_text().rpartition(")")[2].split()[1]
        held = _megabytes(agent) + _megabytes(zygote)
        assert session.warm is not None
        await session.warm.close()
        await registry.close()
    text = f"import {module}; print(open('/proc/self/status').read())"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    alone = _resident(done.stdout)
    note = f"{held - alone:+.0f} MB"
    goal, met = f"at most {MOST_MORE:.0f} MB more", held <= alone + MOST_MORE
    what = f"memory of a parked replica with {module}"
    return Figure(what, held, "its import alone", alone, "MB", goal, met, note)


def _megabytes(pid: str) -> float:
    return _resident(Path(f"/proc/{pid}/status").read_text())


def _resident(status: str) -> float:
    """The resident memory in the text of proc(5)'s status."""
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


async def _cluster(at: Place) -> list[Figure]:
    program = "print('first', {0})\n"
    cold, applied = [], []
    async with at.session() as session:
        session.warm = WarmPool()
        objects = await clusters.objects(session, CLUSTER + program.format(-1))
        for number in range(COLD_ROUNDS):
            cold.append(await _first(session, CLUSTER + program.format(number)))
            await asyncio.to_thread(at.remove)
            applied.append((await asyncio.to_thread(cluster_start._kubectl, at, objects))[1])
        warm = await _reruns(session, CLUSTER, program)
        await asyncio.to_thread(at.remove)
    what = "edited cell to first line, cluster"
    return [
        _figure(what, warm, "cold cell", cold),
        _figure("the same", warm, "kubectl apply, stern waiting", applied),
        _p95(what, warm, MOST_ON_CLUSTER),
    ]


async def _reruns(session: Session, header: str, program: str) -> list[float]:
    """Seconds to the first line of edited cells, behind the one that starts the replicas."""
    header += "%warm\n"
    await _first(session, header + program.format(-1))
    found = [await _first(session, header + program.format(n)) for n in range(WARM_ROUNDS)]
    assert session.warm is not None
    await session.warm.close()
    return found


async def _first(session: Session, cell: str) -> float:
    began = time.time()
    clock, _ = await clusters.run(session, cell)
    return clock.first - began


def _figure(what: str, ours: list[float], name: str, peers: list[float]) -> Figure:
    mine, theirs = median(ours), median(peers)
    note = f"p50 of {len(ours)}, slowest {max(ours) * 1e3:,.0f}; "
    note += f"peer from {min(peers) * 1e3:,.0f} to {max(peers) * 1e3:,.0f}"
    met = mine <= theirs
    return Figure(what, mine * 1e3, name, theirs * 1e3, "ms", "at most 1x", met, note)


def _p95(what: str, ours: list[float], most: float) -> Figure:
    """The time within which 95 of 100 cells have their first line, against the goal."""
    mine = sorted(ours)[int(len(ours) * 0.95)] * 1e3
    note = f"p50 {median(ours) * 1e3:,.0f}, slowest {max(ours) * 1e3:,.0f}"
    return Figure(f"{what}, p95", mine, "the goal", most, "ms", "at most 1x", mine <= most, note)
