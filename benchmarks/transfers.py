"""Files from a pod and to it, beside ``kubectl cp``, which needs tar in the image.

Ours computes a digest at both ends. ``CIAO_BENCH_BYTES`` names other sizes, separated by commas.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks import clusters
from benchmarks.clusters import JOB, Clock, Place
from benchmarks.figure import Figure, median
from ciao_kernel.model import Job, Replica, State
from ciao_kernel.plugins import Backend
from ciao_kernel.session import copying
from ciao_kernel.session.session import Session
from ciao_kernel.visible_text import short

SIZES = (1_000_000, 100_000_000, 1_000_000_000)
ROUNDS = {1_000_000: 5, 100_000_000: 3}
"""Rounds of a size; others have one."""
MOST = 1.5
WORKER = Replica("worker", 0)
CELL = f"""\
%framework=tensorflow
%name={JOB}
%worker=1
%detach
import os, time
for size in SIZES:
    with open(str(size), "wb") as file:
        for _ in range(0, size, 1_000_000):
            file.write(os.urandom(min(size, 1_000_000)))
open("ready", "w").close()
time.sleep(3600)
"""


def asked_sizes() -> tuple[int, ...]:
    """Sizes of the files in bytes, by ``CIAO_BENCH_BYTES`` or the usual ones."""
    asked = os.environ.get("CIAO_BENCH_BYTES")
    return tuple(map(int, asked.split(","))) if asked else SIZES


def measure() -> Iterator[Figure]:
    """Ours and kubectl's take turns; each file is compared."""
    sizes = asked_sizes()
    with clusters.place("bench-transfers") as at, tempfile.TemporaryDirectory() as folder:
        if at is not None:
            yield from asyncio.run(_measure(at, Path(folder), sizes))


async def _measure(at: Place, folder: Path, sizes: tuple[int, ...]) -> list[Figure]:
    figures = []
    async with at.session() as session:
        await session.run(CELL.replace("SIZES", repr(sizes)), Clock(), folder)
        backend, job, _ = await _running(session)
        pod = f"{at.namespace.name}/{job.name}-{WORKER}:/ciao"
        for size in sizes:
            took: dict[str, list[float]] = {}
            for _ in range(ROUNDS.get(size, 1)):
                here, theirs = folder / "ours", folder / "theirs"
                copies = {
                    "from": partial(_take, backend, job, str(size), here, session),
                    "kubectl from": partial(_kubectl, at, f"{pod}/{size}", theirs),
                    "to": partial(_give, backend, job, here, session),
                    "kubectl to": partial(_kubectl, at, theirs, f"{pod}/theirs"),
                }
                for name, copy in copies.items():
                    began = time.monotonic()
                    await copy()
                    took.setdefault(name, []).append(time.monotonic() - began)
                assert _digest(here) == _digest(theirs), "the copies differ"
            for way in ("from", "to"):
                ours, peer = median(took[way]), median(took[f"kubectl {way}"])
                what = f"{size / 1e6:,.0f} MB {way} a pod"
                goal = f"at most {MOST} times"
                figures.append(
                    Figure(what, ours, "kubectl cp", peer, "s", goal, ours <= MOST * peer)
                )
                print(short(f"    {what}: {ours:.2f} s, kubectl cp {peer:.2f} s"), flush=True)
    await asyncio.to_thread(at.remove)
    return figures


async def _running(session: Session) -> tuple[Backend, Job, object]:
    while True:
        backend, job, status = await session.find(JOB)
        if status.state is State.RUNNING:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    target = Path(folder, "ready")
                    await copying.take(backend, job, WORKER, "ready", target, session.settings)
                    return backend, job, status
                except Exception as error:
                    print("    waits:", short(str(error)), flush=True)
        await asyncio.sleep(2)


async def _take(backend: Backend, job: Job, path: str, here: Path, session: Session) -> None:
    await copying.take(backend, job, WORKER, path, here, session.settings)


async def _give(backend: Backend, job: Job, here: Path, session: Session) -> None:
    await copying.give(backend, job, WORKER, here, "ours", session.settings)


async def _kubectl(at: Place, source: object, target: object) -> None:
    argv = at.kubectl("cp", "-c", "tensorflow", str(source), str(target))
    await asyncio.to_thread(subprocess.run, argv, check=True, capture_output=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
