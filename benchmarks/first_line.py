"""From execute_request to a 2-replica job's first line, against bare asyncio subprocesses."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec

from jupyter_client.blocking.client import BlockingKernelClient

from benchmarks.figure import Figure, median
from benchmarks.kernels import started

HEADER = "%framework=tensorflow\n%worker=2\n"
TRIVIAL = "print('first')\n"
REAL = "import tensorflow\nprint('first')\n"


def measure() -> Iterator[Figure]:
    """A program that only prints, and one that imports TensorFlow before."""
    yield _compare("first line, a program that only prints", TRIVIAL, 15, 0.06)
    if find_spec("tensorflow"):
        yield _compare("first line, after import tensorflow", REAL, 5, 0.1)


def _compare(what: str, program: str, runs: int, over: float) -> Figure:
    ours, peer = [], []
    with started("ciao") as (_, client, _):
        client.execute_interactive(HEADER + TRIVIAL, timeout=60, output_hook=lambda _: None)
        for _ in range(runs):
            ours.append(_cell(client, HEADER + program))
            peer.append(asyncio.run(_bare(program)))
    a, b = median(ours), median(peer)
    return Figure(
        what,
        a * 1000,
        "asyncio subprocess",
        b * 1000,
        "ms",
        f"at most 1.2x + {over * 1000:.0f} ms",
        a <= 1.2 * b + over,
        f"{(a - b) * 1000:+.0f} ms",
    )


def _cell(client: BlockingKernelClient, code: str) -> float:
    """Seconds until a client has the first line of the job."""
    times: list[float] = []

    def hook(message: dict) -> None:  # type: ignore[type-arg]
        content = message["content"]
        if message["msg_type"] == "stream" and "first" in content["text"]:
            times.append(time.perf_counter())

    began = time.perf_counter()
    reply = client.execute_interactive(code, timeout=120, output_hook=hook)
    assert reply["content"]["status"] == "ok", reply["content"]
    return times[0] - began


async def _bare(program: str) -> float:
    """Seconds until the first of two plain processes has printed."""
    began = time.perf_counter()
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-u", "-c", program),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        for _ in range(2)
    ]
    reads = [asyncio.ensure_future(_first(process.stdout)) for process in processes]
    await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
    took = time.perf_counter() - began
    await asyncio.gather(*reads, *(process.wait() for process in processes))
    return took


async def _first(stream: asyncio.StreamReader | None) -> None:
    assert stream is not None
    while b"first" not in await stream.readline():
        pass
