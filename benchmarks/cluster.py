"""On the tests' Kubernetes (`make cluster`): submit, first line, end, and log lines.

Peers are kubectl with the same objects, and the bare requests on an open connection. Left out
where no cluster is up.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import yaml

from benchmarks.figure import Figure, median
from ciao_kernel.config import Settings
from ciao_kernel.kube import access
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Event, Job, Notice, Output, Owner, Status
from ciao_kernel.registry import Registry
from ciao_kernel.session import Session
from tests.cluster.cluster import Cluster
from tests.cluster.namespace import Namespace

ROUNDS = 10
LINES = 100_000
CELL = "%framework=tensorflow\n%name=bench\n%worker=2\nprint('first')\n"
MANY = (
    "%framework=tensorflow\n%name=bench\n%worker=1\nimport sys\n"
    f"for i in range(0, {LINES}, 100):\n"
    "    sys.stdout.write(''.join(f'step {n} loss 0.31 accuracy 0.97\\n' "
    "for n in range(i, i + 100)))\n"
)


class Clock:
    """A display that notes when things came."""

    def __init__(self) -> None:
        self.accepted = self.first = self.over = 0.0
        self.lines = 0
        self.notices = ""

    def begin(self, job: Job, follow: tuple[str, ...]) -> None:
        self.accepted = time.perf_counter()

    def show(self, event: Event) -> None:
        if isinstance(event, Output):
            self.first = self.first or time.perf_counter()
            self.lines += event.lines
        elif isinstance(event, Status) and event.state.over:
            self.over = self.over or time.perf_counter()
        elif isinstance(event, Notice):
            self.notices += event.text

    async def end(self) -> None:
        pass


def measure() -> Iterator[Figure]:
    """Rounds of ours and the peer's take turns."""
    cluster = Cluster()
    if cluster.node.pid is None:
        print("    left out: no cluster is up (make cluster)")
        return
    os.environ["KUBECONFIG"] = str(cluster.at.kubeconfig)
    namespace = Namespace(cluster, "bench")
    namespace.create()
    try:
        yield from asyncio.run(_measure(cluster, namespace))
    finally:
        namespace.delete()


async def _measure(cluster: Cluster, namespace: Namespace) -> list[Figure]:
    async with _session(cluster, namespace) as session:
        objects = await _objects(session)
        await _run(session, namespace, CELL)  # connections open, modules imported
        ours, firsts, kubectl, bare, kubectl_firsts = [], [], [], [], []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            clock = await _run(session, namespace, CELL)
            ours.append(clock.accepted - began)
            firsts.append(clock.first - began)
            applied, first = await asyncio.to_thread(_kubectl, cluster, namespace, objects)
            kubectl.append(applied)
            kubectl_firsts.append(first)
            bare.append(await _bare(namespace, objects))
        speed, cpu = await _lines(session, namespace)
        peer_speed, peer_cpu = await asyncio.to_thread(_kubectl_lines, cluster, namespace)
    mine, theirs, least = median(ours), median(kubectl), median(bare)
    return [
        Figure("cell to job accepted", mine * 1e3, "kubectl apply", theirs * 1e3, "ms",
               "at most 0.3x", mine <= 0.3 * theirs),
        Figure("cell to job accepted", mine * 1e3, "bare requests", least * 1e3, "ms",
               "at most 1.5x", mine <= 1.5 * least, "ours also checks rights and tries it first"),
        Figure("cell to first line", median(firsts) * 1e3, "kubectl apply, logs -f",
               median(kubectl_firsts) * 1e3, "ms", "at most 1x",
               median(firsts) <= median(kubectl_firsts)),
        Figure("lines of a finished pod", speed, "kubectl logs", peer_speed, "lines/s", "lost 0",
               True, f"CPU-s per 1M lines: {cpu:.1f}, kubectl {peer_cpu:.1f}"),
    ]  # fmt: skip


@contextlib.asynccontextmanager
async def _session(cluster: Cluster, namespace: Namespace) -> AsyncIterator[Session]:
    registry = Registry({})
    with tempfile.TemporaryDirectory() as storage:
        settings = Settings(
            storage=Path(storage),
            namespace=namespace.name,
            images={"tensorflow": cluster.image("tools")},
        )
        yield Session(registry, Owner("bench", os.getpid()), settings)
        await registry.close()


async def _objects(session: Session) -> list[dict[str, Any]]:
    clock = Clock()
    await session.run("%dryrun\n" + CELL, clock, Path("/"))
    return list(yaml.safe_load_all(clock.notices))


async def _run(session: Session, namespace: Namespace, cell: str) -> Clock:
    clock = Clock()
    await session.run(cell, clock, Path("/"))
    backend, job, _ = await session.find("bench")
    await backend.delete(job)
    return clock


def _kubectl(
    cluster: Cluster, namespace: Namespace, objects: list[dict[str, Any]]
) -> tuple[float, float]:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    began = time.perf_counter()
    namespace.kubectl("apply", "-f", "-", text=text)
    applied = time.perf_counter() - began
    argv = cluster.kubectl_argv("-n", namespace.name, "logs", "-f", "bench-worker-0")
    while True:
        logs = subprocess.Popen(
            argv, env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert logs.stdout
        line = logs.stdout.readline()
        first = time.perf_counter() - began
        logs.kill()
        logs.wait()
        if line:
            break
    namespace.kubectl("delete", "tfjob,configmap", "-l", "ciao-kernel/job=bench")
    _gone(namespace)
    return applied, first


async def _bare(namespace: Namespace, objects: list[dict[str, Any]]) -> float:
    async with Client(await access.load()) as client:
        await client.get("/version")
        at = namespace.name
        source, job = objects
        began = time.perf_counter()
        await client.create(f"/api/v1/namespaces/{at}/configmaps", source)
        await client.create(f"/apis/kubeflow.org/v1/namespaces/{at}/tfjobs", job)
        took = time.perf_counter() - began
    await asyncio.to_thread(
        namespace.kubectl, "delete", "tfjob,configmap", "-l", "ciao-kernel/job=bench"
    )
    await asyncio.to_thread(_gone, namespace)
    return took


def _gone(namespace: Namespace) -> None:
    while namespace.get("pods")["items"]:
        time.sleep(0.1)


async def _lines(session: Session, namespace: Namespace) -> tuple[float, float]:
    """Read a log of many lines from its start, as `ciao attach` of a finished job does."""
    await session.run(MANY, Clock(), Path("/"))
    clock = Clock()
    began, cpu = time.perf_counter(), time.process_time()
    await session.attach("bench", clock)
    took = time.perf_counter() - began
    assert clock.lines == LINES, clock.lines
    return LINES / took, (time.process_time() - cpu) * 1e6 / LINES


def _kubectl_lines(cluster: Cluster, namespace: Namespace) -> tuple[float, float]:
    argv = cluster.kubectl_argv("-n", namespace.name, "logs", "bench-worker-0")
    before, began = os.times(), time.perf_counter()
    done = subprocess.run(argv, env=cluster.environment, capture_output=True, check=True)
    took, after = time.perf_counter() - began, os.times()
    assert len(re.findall(rb"\n", done.stdout)) == LINES
    cpu = after.children_user + after.children_system
    return LINES / took, (cpu - before.children_user - before.children_system) * 1e6 / LINES
