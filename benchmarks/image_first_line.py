"""From an edited cell to its job's first line, by each builder: against the default, a ConfigMap.

All jobs have one worker with the same Python. The environments of kaniko and S2I are built by a
first cell that is not counted: their pods have made a layer on the same base.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from benchmarks import clusters
from benchmarks.clusters import JOB, Place
from benchmarks.figure import Figure, median
from ciao_kernel.session.session import Session

ROUNDS = 6
DEFAULT = "configmap"
BUILDERS = {
    DEFAULT: "",
    "append": "",
    "kaniko": "%dockerfile=Dockerfile\n",
    "s2i": "%s2iBuilder={s2i}\n",
}


def measure() -> Iterator[Figure]:
    """The builders take turns."""
    with clusters.place("bench-builders") as at, tempfile.TemporaryDirectory() as folder:
        if at is not None:
            yield from asyncio.run(_measure(at, Path(folder)))


async def _measure(at: Place, folder: Path) -> list[Figure]:
    registry, python = at.cluster.at.registry, at.cluster.image("python")
    (folder / "Dockerfile").write_text(f"FROM {python}\nRUN echo built > /opt/built\n")
    settings = {
        "images": {"tensorflow": python},
        "plain_registries": (registry,),
        "registry": f"{registry}/bench-{secrets.token_hex(3)}/cells",
        "kaniko_image": at.cluster.image("kaniko"),
    }
    found: dict[str, list[float]] = {name: [] for name in BUILDERS}
    turns = deque(BUILDERS)
    async with at.session(**settings) as session:
        first = {name: await _run(at, session, name, 0, folder) for name in BUILDERS}
        for number in range(1, ROUNDS + 1):
            for name in turns:
                found[name].append(await _run(at, session, name, number, folder))
            turns.rotate()
    return [
        _figure(name, found[name], found[DEFAULT], f"its first cell {first[name]:.1f} s")
        for name in BUILDERS
        if name != DEFAULT
    ]


async def _run(at: Place, session: Session, builder: str, number: int, folder: Path) -> float:
    """Seconds from a cell to its first line.

    Raises:
        RuntimeError: There was none.
    """
    wishes = BUILDERS[builder].format(s2i=at.cluster.image("s2i-python"))
    head = f"%framework=tensorflow\n%name={JOB}\n%worker=1\n%builder={builder}\n{wishes}"
    began = time.time()
    clock, _ = await clusters.run(session, f"{head}print('first', {number})\n", folder)
    if not clock.first:
        raise RuntimeError(f"the cell of %builder={builder} wrote nothing: {clock.notices}")
    await asyncio.to_thread(at.remove)
    return clock.first - began


def _figure(name: str, ours: list[float], default: list[float], note: str) -> Figure:
    mine, theirs = median(ours), median(default)
    note += f"; from {min(ours) * 1e3:,.0f} to {max(ours) * 1e3:,.0f}"
    note += f", {DEFAULT} from {min(default) * 1e3:,.0f} to {max(default) * 1e3:,.0f}"
    what, goal = f"edited cell to first line, %builder={name}", "at most 1.3x"
    met = mine <= 1.3 * theirs
    return Figure(what, mine * 1e3, f"%builder={DEFAULT}", theirs * 1e3, "ms", goal, met, note)
