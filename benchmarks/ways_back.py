"""Files of ``%output`` by each way, beside ``kubectl cp``: 1 MB, 100 MB and 1 GB.

The time of a way is that from the program's end to the cell's end, in which the pod ends and, by a
claim, another one starts; the note has that of a job that brings nothing back. ``CIAO_BENCH_BYTES``
names other sizes, separated by commas.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import clusters, transfers
from benchmarks.clusters import JOB, Clock, Place
from benchmarks.figure import Figure, median
from ciao_kernel.delivery.replica_files import LOG_MOST
from ciao_kernel.visible_text import short
from tests.helpers.bucket import Bucket, bucket

ROUNDS = {1_000_000: 3}
"""Rounds of a size; others have one."""
WAYS = ("exec", "log", "s3", "registry", "claim")
MOST = 10.0
"""Seconds that a way may take beyond kubectl's time: pods start and end meanwhile."""
_CLAIM = "results"
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "none"}
CELL = f"""\
%framework=tensorflow
%name={JOB}
%worker=1
OUTPUT
import os
os.makedirs("model", exist_ok=True)
with open("model/net", "wb") as file:
    for _ in range(0, SIZE, 1_000_000):
        file.write(os.urandom(min(SIZE, 1_000_000)))
print("written", flush=True)
"""


def measure() -> Iterator[Figure]:
    """Each way, and kubectl's, from pods of one cluster, one after the other."""
    sizes = transfers.asked_sizes()
    with _variables(), clusters.place("bench-ways-back") as at:
        if at is None:
            return
        _make_claim(at)
        try:
            peers = {size: _kubectl(at, sizes, size) for size in sizes}
            at.remove()
            with bucket(at.cluster.at.host_address) as address:
                yield from asyncio.run(_measure(at, address, peers))
        finally:
            at.cluster.kubectl("delete", "persistentvolume", at.namespace.name, "--wait=false")
            at.cluster.node.run(["rm", "-rf", _folder(at)])


@contextlib.contextmanager
def _variables() -> Iterator[None]:
    """Credentials for the bucket, which takes any; later benchmarks do not see them."""
    before = {name: os.environ.get(name) for name in _CREDENTIALS}
    os.environ.update(_CREDENTIALS)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _folder(at: Place) -> str:
    """The folder of the claim, on the node."""
    return f"/var/tmp/{at.namespace.name}"


async def _measure(at: Place, address: str, peers: dict[int, float]) -> list[Figure]:
    host, figures = at.cluster.at.registry, []
    settings = {
        "output_store": f"{address}/bench",
        "registry": f"{host}/bench/{at.namespace.name}",
        "plain_registries": (host,),
        "output_claim": _CLAIM,
    }
    async with at.session(**settings) as session:

        async def took(size: int, output: str) -> float:
            cell, clock = CELL.replace("SIZE", str(size)).replace("OUTPUT", output), Clock()
            result = await session.run(cell, clock, Path("/"))
            ended = time.time()
            assert result is not None
            assert output == "" or "brought back by" in clock.notices, clock.notices
            shutil.rmtree(clock.folder, ignore_errors=True)
            Bucket.objects.clear()
            await asyncio.to_thread(at.remove)
            return ended - clock.first

        for size, peer in peers.items():
            rounds = ROUNDS.get(size, 1)
            base = median([await took(size, "") for _ in range(rounds)])
            for way in WAYS:
                if way == "log" and size > LOG_MOST:
                    continue
                output = f"%output=model/ by:{way}"
                ours = median([await took(size, output) for _ in range(rounds)])
                what = f"{size / 1e6:,.0f} MB back by:{way}"
                goal = f"at most {MOST:g} s longer"
                good = ours <= peer + MOST
                note = f"without files: {base:.1f} s"
                figures.append(Figure(what, ours, "kubectl cp", peer, "s", goal, good, note))
                print(short(f"    {what}: {ours:.2f} s, kubectl cp {peer:.2f} s"), flush=True)
    return figures


def _kubectl(at: Place, sizes: tuple[int, ...], size: int) -> float:
    """Return how long kubectl takes for one of the files of a pod that waits."""
    pod = f"{JOB}-worker-0"
    if not at.namespace.get("pods")["items"]:
        at.submit(transfers.CELL.replace("SIZES", repr(sizes)))
        ready = at.kubectl("exec", pod, "-c", "tensorflow", "--", "test", "-e", "ready")
        while subprocess.run(ready, capture_output=True, check=False).returncode:
            time.sleep(1)
    times = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS.get(size, 1)):
            began = time.monotonic()
            source = f"{at.namespace.name}/{pod}:/ciao/{size}"
            argv = at.kubectl("cp", "-c", "tensorflow", source, f"{folder}/file")
            subprocess.run(argv, check=True, capture_output=True)
            times.append(time.monotonic() - began)
            assert Path(folder, "file").stat().st_size == size
    return median(times)


def _make_claim(at: Place) -> None:
    name = at.namespace.name
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": name}
    folder = {"path": _folder(at), "type": "DirectoryOrCreate"}
    size = {"storage": "4Gi"}
    disk = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {**spec, "capacity": size, "hostPath": folder},
    }
    at.cluster.kubectl("create", "-f", "-", text=json.dumps(disk))
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": _CLAIM},
        "spec": {**spec, "resources": {"requests": size}},
    }
    at.namespace.create_objects(claim)
