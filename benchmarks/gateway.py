"""Ten kernels at once under Enterprise Gateway: when each is there, and how much memory it takes.

Peer: IPython's kernel in the same image, under the same gateway, started by the same launcher.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from benchmarks.figure import Figure, median
from tests.cluster.cluster import Cluster
from tests.e2e.gateway import place
from tests.e2e.gateway.client import Api, RemoteKernel
from tests.e2e.gateway.place import ENTERPRISE_GATEWAY, Gateway, memory

AT_ONCE = 10
PLAIN = "ipykernel.ipkernel.IPythonKernel"


def measure() -> Iterator[Figure]:
    """Ten of ours, then ten of the peer's."""
    cluster = Cluster()
    if cluster.node.pid is None:
        print("    left out: no cluster is up (make cluster)")
        return
    with place.serving(cluster, ENTERPRISE_GATEWAY) as gateway:
        ours, our_sizes = _ten(gateway, gateway.up())
        plain, plain_sizes = _ten(gateway, gateway.up(kernel_class=PLAIN))
    yield _figure("ten kernels at once, until one answers", ours, plain, "s", 1.0, 1.1)
    yield _figure("memory of a kernel's pod (PSS)", our_sizes, plain_sizes, "MB", 1e-6, 1.2)


def _ten(gateway: Gateway, api: Api) -> tuple[list[float], list[float]]:
    gateway.start(api).delete()  # The node has the image now, and has it in memory.

    def one(number: int) -> tuple[RemoteKernel, float]:
        began = time.monotonic()
        return gateway.start(api, KERNEL_USERNAME=f"user-{number}"), time.monotonic() - began

    with ThreadPoolExecutor(AT_ONCE) as pool:
        started = list(pool.map(one, range(AT_ONCE)))
    pods = gateway.team.kernels()
    sizes = [memory(pods[kernel.id]["metadata"]["uid"]) for kernel, _ in started]
    for kernel, _ in started:
        kernel.delete()
    return [seconds for _, seconds in started], sizes


def _figure(
    what: str, ours: list[float], peers: list[float], unit: str, scale: float, most: float
) -> Figure:
    mine, theirs = median(ours) * scale, median(peers) * scale
    note = f"from {min(ours) * scale:,.1f} to {max(ours) * scale:,.1f}; "
    note += f"peer from {min(peers) * scale:,.1f} to {max(peers) * scale:,.1f}"
    met = mine <= most * theirs
    return Figure(what, mine, "IPython's kernel", theirs, unit, f"at most {most}x", met, note)
