"""From an edited cell to its first line in warm replicas (``%warm``).

Peers: the same cell without ``%warm``, and ``kubectl apply`` of its objects with a stern that waits
for them already. On this machine the program also imports numpy, on the cluster nothing: so the
cluster's figures are about pods, and those of this machine about the import.
"""

from __future__ import annotations

import asyncio
import os
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

WARM_ROUNDS = 20
COLD_ROUNDS = 5
LOCAL = "%framework=python\n%worker=2\n%backend=local\n"
CLUSTER = f"%framework=tensorflow\n%worker=2\n%name={JOB}\n"


def measure() -> Iterator[Figure]:
    """On this machine, then on the cluster if one is up."""
    yield from asyncio.run(_local())
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
    return [_figure("edited cell to first line, local", warm, "cold cell", cold)]


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
    return [
        _figure("edited cell to first line, cluster", warm, "cold cell", cold),
        _figure("the same", warm, "kubectl apply, stern waiting", applied),
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
