"""A cell with packages, the second time: ciao's two layers against kaniko with its caches.

Both install one pure-Python wheel from an index on this machine, on a base of 1.8 GB, and push
to the same registry. The first run of each, which is not counted, fills their caches.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import clusters, image_peers
from benchmarks.clusters import Place
from benchmarks.figure import Figure, median
from benchmarks.image_cells import CELL, Kernel, edited
from ciao_kernel.kube import access
from ciao_kernel.kube.client import Client
from tests.helpers.packages import Index, serving

BASE = "tensorflow:2.21"
ROUNDS = 2
_PIP = "PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_CACHE_DIR=1"


def measure() -> Iterator[Figure]:
    """Ours and kaniko's builds take turns."""
    with clusters.place("bench-packages") as at, tempfile.TemporaryDirectory() as folder:
        if at is not None:
            with serving(at.cluster.at.host_address) as index:
                index.add("app", "1.0")
                os.environ["PIP_TRUSTED_HOST"] = index.host  # it speaks http
                yield from asyncio.run(_measure(at, index, Path(folder)))


async def _measure(at: Place, index: Index, folder: Path) -> list[Figure]:
    registry, place = at.cluster.at.registry, f"bench-{secrets.token_hex(3)}"
    kernel = Kernel(registry, f"{place}/ciao", folder)
    text = (
        f"FROM {registry}/{BASE}\n"
        f"RUN {_PIP} pip install --index-url {index.url} --trusted-host {index.host} app==1.0\n"
        "COPY cell.py /cell/cell.py\n"
        "WORKDIR /cell\n"
    )

    async def ours(number: int) -> float:
        code = edited(CELL, number)
        return await kernel.build(BASE, code, packages=("app==1.0",), pip_index=index.url)

    async with Client(await access.load()) as client:

        async def theirs(number: int) -> float:
            files = {"cell.py": edited(CELL, number)}
            return await image_peers.kaniko(at, client, text, files, f"{registry}/{place}/kaniko:1")

        first, first_of_kaniko = await ours(0), await theirs(0)
        edits, edits_of_kaniko, same, same_of_kaniko = [], [], [], []
        for number in range(1, ROUNDS + 1):
            edits.append(await ours(number))
            edits_of_kaniko.append(await theirs(number))
            same.append(await ours(number))
            same_of_kaniko.append(await theirs(number))
    note = f"the first run: {first:.1f} s, kaniko {first_of_kaniko:.1f} s"
    return [
        _figure("cell with packages, edited", edits, edits_of_kaniko, 0.01, note),
        _figure("cell with packages, unchanged", same, same_of_kaniko, 0.1, ""),
    ]


def _figure(what: str, ours: list[float], peers: list[float], most: float, note: str) -> Figure:
    mine, theirs, name = median(ours), median(peers), "kaniko's pod, its caches on"
    met = mine <= most * theirs
    return Figure(what, mine * 1e3, name, theirs * 1e3, "ms", f"at most {most}x", met, note)
