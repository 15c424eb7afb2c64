"""From a cell to its job, and to the job's first line.

Peers: ``kubectl apply`` of the same objects, with a stern that waits for them already; the bare
requests on an open connection; the kubeflow-training SDK.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from dataclasses import replace

from benchmarks import clusters, sdk
from benchmarks.clusters import JOB, Place, Reader
from benchmarks.figure import Figure, median
from ciao_kernel.kube import access
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.session.session import Session

ROUNDS = 10
OF_SDK = 3
UNNAMED = "%framework=tensorflow\n%worker=2\nprint('first')\n"
CELL = f"%name={JOB}\n{UNNAMED}"


def measure() -> Iterator[Figure]:
    """Rounds of ours and the peers' take turns."""
    with clusters.place("bench-start") as at:
        if at is not None:
            yield from asyncio.run(_measure(at))


async def _measure(at: Place) -> list[Figure]:
    new, edited, named, first, again = [], [], [], [], []
    applied, applied_first, bare = [], [], []
    async with at.session() as session:
        objects = await clusters.objects(session, CELL)
        for cell in (CELL, UNNAMED):  # connections open, modules imported, jobs like these tried
            await _ours(at, session, cell)
        async with Client(await access.load()) as client:
            for number in range(ROUNDS):
                new.append((await _ours(at, session, f"%envvar=ROUND={number}\n{CELL}"))[0])
                edited.append((await _ours(at, session, UNNAMED))[0])
                one, two = await asyncio.to_thread(_kubectl, at, objects)
                applied.append(one)
                applied_first.append(two)
                one, two = await _ours(at, session)
                named.append(one)
                first.append(two)
                again.append(await _again(session))
                await asyncio.to_thread(at.remove)
                bare.append(await _bare(at, client, objects))
    figures = [
        _figure("cell to job accepted", new, "kubectl apply", applied, 0.3),
        _figure("edited cell to job accepted", edited, "the 2 bare requests", bare, 1.5),
        _figure("the same with %name, looked up", named, "the 2 bare requests", bare, 1.5),
        _figure("the same, its job still there", again, "the 2 bare requests", bare, 1.5),
        _figure("cell to first line", first, "kubectl apply, stern waiting", applied_first, 1),
    ]
    if interpreter := sdk.python():
        tries = [await asyncio.to_thread(_sdk, at, interpreter) for _ in range(OF_SDK)]
        theirs = [one for one in tries if one is not None]
        lost = f"; it never showed the line in {len(tries) - len(theirs)} of {len(tries)} runs"
        figure = _figure("cell to first line", first, sdk.NAME, theirs or [math.nan], 1)
        more = lost if len(theirs) < len(tries) else ""
        figures.append(replace(figure, note=figure.note + more))
    return figures


def _figure(what: str, ours: list[float], name: str, peers: list[float], most: float) -> Figure:
    mine, theirs = median(ours), median(peers)
    note = f"from {min(ours) * 1e3:,.0f} to {max(ours) * 1e3:,.0f}; "
    note += f"peer from {min(peers) * 1e3:,.0f} to {max(peers) * 1e3:,.0f}"
    met = mine <= most * theirs
    return Figure(what, mine * 1e3, name, theirs * 1e3, "ms", f"at most {most}x", met, note)


async def _ours(at: Place, session: Session, cell: str = CELL) -> tuple[float, float]:
    began = time.time()
    clock, _ = await clusters.run(session, cell)
    await asyncio.to_thread(at.remove)
    return clock.accepted - began, clock.first - began


async def _again(session: Session) -> float:
    """Seconds for an edited cell whose job before has the name: it gets the next one."""
    await clusters.run(session, CELL)
    began = time.time()
    clock, _ = await clusters.run(session, f"{CELL}print('edited')\n")
    return clock.accepted - began


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


def _sdk(at: Place, interpreter: str) -> float | None:
    """Seconds to the first line, or None where the SDK has lost it."""
    with sdk.reader(interpreter, at, "first") as reader:
        try:
            took = reader.find("]: first") - sdk.said(reader.lines, "began")
        except RuntimeError:
            took = None
        reader.wait(10)
    at.remove()
    return took
