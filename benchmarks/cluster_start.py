"""From a cell to its job, and to the job's first line.

Peers: ``kubectl apply`` of the same objects, with a stern that waits for them already; the bare
requests on an open connection; the kubeflow-training SDK.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from benchmarks import clusters, sdk
from benchmarks.clusters import JOB, Place, Reader
from benchmarks.figure import Figure, median
from ciao_kernel.kube import access
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.session import Session

ROUNDS = 10
OF_SDK = 3
CELL = f"%framework=tensorflow\n%name={JOB}\n%worker=2\nprint('first')\n"


def measure() -> Iterator[Figure]:
    """Rounds of ours and the peers' take turns."""
    with clusters.place("bench-start") as at:
        if at is not None:
            yield from asyncio.run(_measure(at))


async def _measure(at: Place) -> list[Figure]:
    accepted, first = [], []
    applied, applied_first, bare = [], [], []
    async with at.session() as session:
        objects = await clusters.objects(session, CELL)
        await _ours(at, session)  # connections open, modules imported
        async with Client(await access.load()) as client:
            for _ in range(ROUNDS):
                one, two = await _ours(at, session)
                accepted.append(one)
                first.append(two)
                one, two = await asyncio.to_thread(_kubectl, at, objects)
                applied.append(one)
                applied_first.append(two)
                bare.append(await _bare(at, client, objects))
    figures = [
        _figure("cell to job accepted", accepted, "kubectl apply", applied, 0.3),
        _figure("cell to job accepted", accepted, "the 2 bare requests", bare, 1.5),
        _figure("cell to first line", first, "kubectl apply, stern waiting", applied_first, 1),
    ]
    if interpreter := sdk.python():
        theirs = [await asyncio.to_thread(_sdk, at, interpreter) for _ in range(OF_SDK)]
        figures.append(_figure("cell to first line", first, sdk.NAME, theirs, 1))
    return figures


def _figure(what: str, ours: list[float], name: str, peers: list[float], most: float) -> Figure:
    mine, theirs = median(ours), median(peers)
    note = f"from {min(ours) * 1e3:,.0f} to {max(ours) * 1e3:,.0f}; "
    note += f"peer from {min(peers) * 1e3:,.0f} to {max(peers) * 1e3:,.0f}"
    met = mine <= most * theirs
    return Figure(what, mine * 1e3, name, theirs * 1e3, "ms", f"at most {most}x", met, note)


async def _ours(at: Place, session: Session) -> tuple[float, float]:
    began = time.time()
    clock, _ = await clusters.run(session, CELL)
    await asyncio.to_thread(at.remove)
    return clock.accepted - began, clock.first - began


def _kubectl(at: Place, objects: list[Object]) -> tuple[float, float]:
    text = clusters.listed(objects)
    with Reader(at.stern()) as stern:
        time.sleep(1)  # it watches by now
        began = time.time()
        at.namespace.kubectl("apply", "-f", "-", text=text)
        applied = time.time() - began
        first = stern.find("first") - began
    at.remove()
    return applied, first


async def _bare(at: Place, client: Client, objects: list[Object]) -> float:
    name = at.namespace.name
    paths = {
        "ConfigMap": f"/api/v1/namespaces/{name}/configmaps",
        "TFJob": f"/apis/kubeflow.org/v1/namespaces/{name}/tfjobs",
    }
    await client.get("/version")  # the connection is open
    began = time.perf_counter()
    for item in objects:
        await client.create(paths[item["kind"]], item)
    took = time.perf_counter() - began
    await asyncio.to_thread(at.remove)
    return took


def _sdk(at: Place, interpreter: str) -> float:
    with sdk.reader(interpreter, at, "first") as reader:
        first = reader.find("]: first")
        took = first - sdk.said(reader.lines, "began")
        reader.wait(10)
    at.remove()
    return took
