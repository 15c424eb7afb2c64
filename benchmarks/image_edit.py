"""An edited cell on a base of 1.8 GB: ciao's append against what else adds files to an image.

All push to one registry, ciao to one repository and its peers to theirs, and all have done so
before. ciao's connection is open; crane and buildah are programs, and open theirs each time.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import secrets
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from benchmarks import clusters, image_peers, wire
from benchmarks.clusters import Place
from benchmarks.figure import Figure, absent, median
from benchmarks.image_cells import CELL, Kernel, edited
from benchmarks.image_peers import Crane, had
from ciao_kernel.kube import access
from ciao_kernel.kube.client import Client

LARGE = "tensorflow:2.21"
SMALL = "tools:1"
ROUNDS = 20
OF_BUILDAH = 8
OF_KANIKO = 2
_numbers = itertools.count(1)

Rival = Callable[[str], Awaitable[float]]
"""Adds a cell with this code to the base, and returns seconds."""


def measure() -> Iterator[Figure]:
    """Rounds of ours and the peers' take turns."""
    with clusters.place("bench-image") as at, tempfile.TemporaryDirectory() as folder:
        if at is not None:
            crane = had("crane", Crane)
            yield from asyncio.run(_programs(at, crane, Path(folder)))
            yield from asyncio.run(_buildah(at, Path(folder)))
            yield from _counts(at, crane, Path(folder))
            yield from asyncio.run(_kaniko(at, Path(folder)))


def _code(cell: str = CELL) -> str:
    return edited(cell, next(_numbers))


async def _programs(at: Place, crane: Crane | None, folder: Path) -> list[Figure]:
    registry, place = at.cluster.at.registry, f"bench-{secrets.token_hex(3)}"
    kernel = Kernel(registry, f"{place}/ciao", folder)
    again: list[float] = []
    again_by_crane: list[float] = []

    async def ours(code: str) -> float:
        took = await kernel.build(LARGE, code)
        again.append(await kernel.build(LARGE, code))
        return took

    async def on_small(code: str) -> float:
        return await kernel.build(SMALL, code)

    async def anew(code: str) -> float:
        return await Kernel(registry, f"{place}/ciao", folder).build(LARGE, code)

    async def by_crane(code: str) -> float:
        assert crane
        tar = image_peers.layer(folder / "layer.tar", code)
        words = (f"{registry}/{LARGE}", f"{registry}/{place}/crane:1", tar)
        took = crane.append(*words)
        again_by_crane.append(crane.append(*words))
        return took

    rivals: list[Rival] = [ours, on_small, anew, *([by_crane] if crane else [])]
    found = await _rounds(ROUNDS, rivals)
    what, name = f"edited cell on {LARGE}", "crane append"
    return [
        _figure(what, found[ours], name, found[by_crane], 1.5),
        _figure(f"{what}, a new connection", found[anew], name, found[by_crane], 1.5),
        _figure("the same cell again", again[1:], name, again_by_crane[1:], 1),
        _figure(what, found[ours], f"ciao on {SMALL}", found[on_small], 1.2),
    ]


async def _buildah(at: Place, folder: Path) -> list[Figure]:
    registry, place = at.cluster.at.registry, f"bench-{secrets.token_hex(3)}"
    kernel = Kernel(registry, f"{place}/ciao", folder)
    with image_peers.buildah(f"{registry}/{LARGE}") as buildah:

        async def ours(code: str) -> float:
            return await kernel.build(LARGE, code)

        async def build(code: str) -> float:
            assert buildah
            return buildah.build(f"{registry}/{place}/built:1", code)

        async def commit(code: str) -> float:
            assert buildah
            return buildah.commit(f"{registry}/{place}/committed:1", code)

        rivals: list[Rival] = [ours, *([build, commit] if buildah else [])]
        found = await _rounds(OF_BUILDAH, rivals)
    what = f"edited cell on {LARGE}"
    return [
        _figure(what, found[ours], "buildah build, push", found[build], 0.1),
        _figure(what, found[ours], "buildah from, copy, commit", found[commit], 0.1),
    ]


async def _rounds(rounds: int, rivals: Sequence[Rival]) -> dict[Rival, list[float]]:
    """Seconds of each rival in each round; one that is not counted goes before them."""
    found = defaultdict[Rival, list[float]](list)
    for number in range(rounds + 1):
        # In another order each time: some leave a disk behind them that is busy.
        for rival in random.Random(number).sample(rivals, len(rivals)):
            took = await rival(_code())  # none finds a layer that another one has pushed
            if number:
                found[rival].append(took)
    return found


def _counts(at: Place, crane: Crane | None, folder: Path) -> Iterator[Figure]:
    """Requests and bytes, as a relay before the registry counts them."""
    place = f"bench-{secrets.token_hex(3)}"
    with wire.counted(at.cluster.at.registry) as relay:
        kernel = Kernel(relay.host, f"{place}/ciao", folder)

        def ours(code: str) -> tuple[int, int]:
            relay.since()
            asyncio.run(kernel.build(LARGE, code))
            return relay.since()

        def theirs(code: str) -> tuple[int, int]:
            if crane is None:
                return 0, 0
            tar = image_peers.layer(folder / "layer.tar", code)
            relay.since()
            crane.append(f"{relay.host}/{LARGE}", f"{relay.host}/{place}/crane:1", tar)
            return relay.since()

        quickstart = _quickstart()
        for cell in (CELL, quickstart):  # the base's layers have come to the repository
            ours(_code(cell))
            theirs(_code(cell))
        code = _code()
        edit, peer = ours(code), theirs(code)
        again, peer_again = ours(code), theirs(code)
        code = _code(quickstart)
        long, peer_long = ours(code), theirs(code)
    size = f"a cell of {len(CELL):,} characters"
    yield _count("requests for an edited cell", edit[0], peer[0], "", 8)
    yield _count("requests for the same cell again", again[0], peer_again[0], "", 2)
    yield _count("sent for a change of one line", edit[1], peer[1], "bytes", 2048, size)
    size = f"the quickstart's cell, {len(quickstart):,} characters"
    yield _count(
        "sent for a change of one line", long[1], peer_long[1], "bytes", peer_long[1], size
    )


def _quickstart() -> str:
    """The first job cell of the quickstart, with a line that changes."""
    path = Path(__file__).parents[1] / "notebooks" / "quickstart.ipynb"
    cells = ("".join(cell["source"]) for cell in json.loads(path.read_text())["cells"])
    return next(cell for cell in cells if cell.startswith("%framework")) + "\nSTEPS = 0\n"


async def _kaniko(at: Place, folder: Path) -> list[Figure]:
    registry = at.cluster.at.registry
    place = f"bench-{secrets.token_hex(3)}"
    kernel = Kernel(registry, f"{place}/ciao", folder)
    # Not to /ciao, where its context is mounted.
    text = f"FROM {registry}/{LARGE}\nCOPY cell.py /cell/cell.py\nWORKDIR /cell\n"
    ours, theirs = [], []
    await kernel.build(LARGE, _code())
    async with Client(await access.load()) as client:
        for _ in range(OF_KANIKO):
            code = _code()
            ours.append(await kernel.build(LARGE, code))
            target = f"{registry}/{place}/kaniko:1"
            theirs.append(await image_peers.kaniko(at, client, text, {"cell.py": code}, target))
    return [_figure(f"edited cell on {LARGE}", ours, "kaniko's pod, its caches on", theirs, 0.01)]


def _figure(what: str, ours: list[float], name: str, peers: list[float], most: float) -> Figure:
    goal = f"at most {most}x"
    if not peers:
        return absent(what, median(ours) * 1e3, name, "ms", goal)
    mine, theirs = median(ours), median(peers)
    note = f"from {min(ours) * 1e3:,.0f} to {max(ours) * 1e3:,.0f}; "
    note += f"peer from {min(peers) * 1e3:,.0f} to {max(peers) * 1e3:,.0f}"
    met = mine <= most * theirs
    return Figure(what, mine * 1e3, name, theirs * 1e3, "ms", goal, met, note)


def _count(what: str, ours: int, theirs: int, unit: str, most: int, note: str = "") -> Figure:
    if not theirs:
        return absent(what, ours, "crane append", unit, f"at most {most:,}")
    met = ours <= most
    return Figure(what, ours, "crane append", theirs, unit, f"at most {most:,}", met, note)
