"""A job of a thousand replicas on nodes that only pretend (kwok), in a cell of a real kernel.

Nothing runs in its pods, and the cluster itself takes a while: the operator and the garbage
collector make and delete some twenty objects a second. So an observer with connections of its
own says when the pods ran and were gone, and ours is how much later the cell knew.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
from jupyter_client.blocking.client import BlockingKernelClient

from benchmarks import clusters
from benchmarks.clusters import JOB, Place, Reader
from benchmarks.figure import Figure
from benchmarks.kernels import started
from tests.cluster.faults.kwok import PODS, FakeNodes

REPLICAS = 1000
MEMORY = 300.0
"""MB at most: the goal."""
SMALL = f"%framework=tensorflow\n%name={JOB}\nprint('first')\n"
CELL = f"""%framework=tensorflow
%name={JOB}
%worker={REPLICAS}
%nodeSelector=type=kwok
%toleration=kwok=fake:NoSchedule
print('nothing runs this')
"""


class Cell:
    """What a client of the kernel has seen of the cell."""

    def __init__(self) -> None:
        self.accepted = self.full = self.over = 0.0
        self.tables = self.bytes = 0

    def hook(self, message: dict) -> None:  # type: ignore[type-arg]
        """Take a message of the cell."""
        if message["msg_type"] not in ("display_data", "update_display_data"):
            return
        now = time.time()
        html = message["content"]["data"].get("text/html", "")
        self.accepted = self.accepted or now
        self.tables += 1
        self.bytes += len(html)
        if not self.full and full(html):
            self.full = now


def full(html: str) -> bool:
    """Whether a table says that all replicas run: some in rows of their own, the rest in a sum."""
    rows = len(re.findall(r">Running<", html))
    states = " ".join(re.findall(r"<span[^>]*>([^<]*)</span>", html))  # not their tooltips
    sums = [int(number.replace(",", "")) for number in re.findall(r"([\d,]+) Running", states)]
    return rows + sum(sums) >= REPLICAS


def measure() -> Iterator[Figure]:
    """Submit, see all of them run, interrupt."""
    with clusters.place("bench-thousand") as at:
        if at is not None:
            with FakeNodes(at.cluster, -(-REPLICAS // PODS)):
                yield from _measure(at)


def _measure(at: Place) -> Iterator[Figure]:
    cell = Cell()
    argv = [sys.executable, "-m", "benchmarks.observer", at.namespace.name, JOB]
    with started("ciao", at.environment) as (manager, client, _):
        client.execute_interactive(SMALL, timeout=60, output_hook=lambda _: None)
        at.remove()
        process = psutil.Process(manager.provisioner.pid)
        with Reader(argv, at.environment) as observer:
            before = _cpu(process)
            began = time.time()
            work = threading.Thread(target=_execute, args=(client, cell))
            work.start()
            running = _when(observer, lambda seen: seen["pods"].get("Running", 0) >= REPLICAS)
            while not cell.full and time.time() < running + 60:
                time.sleep(0.05)
            cpu, lasted = _cpu(process) - before, time.time() - began
            time.sleep(5)  # it follows on
            clicked = time.time()
            manager.interrupt_kernel()
            gone = _when(observer, lambda seen: not seen["pods"] and not seen["condition"], clicked)
            work.join()
        memory = clusters.peak(process.pid) / 1e6
    mine, theirs = cell.accepted - began, asyncio.run(_kubectl(at))
    yield Figure(
        f"{REPLICAS:,} replicas: cell to the first table", mine * 1e3, "kubectl apply",
        theirs * 1e3, "ms", "at most 1x", mine <= theirs,
    )  # fmt: skip
    yield Figure(
        f"{REPLICAS:,} replicas: cell to the table in which all run",
        cell.full - began if cell.full else math.nan,
        "the API, all running", running - began, "s", "at most 5 s later",
        0 < cell.full <= running + 5,
        f"{cell.tables} tables, {cell.bytes / 1e6:.1f} MB; CPU {cpu:.1f} s in {lasted:.0f} s",
    )  # fmt: skip
    yield Figure(
        f"{REPLICAS:,} replicas: interrupt to the cell's end", cell.over - clicked,
        "the API, all gone", gone - clicked, "s", "at most 1 s later", cell.over <= gone + 1,
    )  # fmt: skip
    yield Figure(
        f"{REPLICAS:,} replicas: the kernel's peak memory", memory, "the goal", MEMORY, "MB",
        f"at most {MEMORY:.0f} MB", memory <= MEMORY,
    )  # fmt: skip


async def _kubectl(at: Place) -> float:
    async with at.session() as session:
        text = clusters.listed(await clusters.objects(session, CELL))
    began = time.perf_counter()
    at.namespace.kubectl("apply", "-f", "-", text=text)
    took = time.perf_counter() - began
    at.namespace.kubectl("delete", "tfjobs", "--all")
    return took


def _execute(client: BlockingKernelClient, cell: Cell) -> None:
    client.execute_interactive(CELL, timeout=900, output_hook=cell.hook)
    cell.over = time.time()


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _when(
    observer: Reader,
    true: Callable[[dict[str, Any]], bool],
    after: float = 0.0,
) -> float:
    """Wait until the observer has seen something; return when that was."""
    done = 0
    while True:
        lines = list(observer.lines)
        for _, line in lines[done:]:
            seen = json.loads(line)
            if seen["at"] > after and true(seen):
                return float(seen["at"])
        done = len(lines)
        time.sleep(0.05)
