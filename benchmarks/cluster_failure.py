"""From the end of a failed replica's program to the red cell, in a kernel.

A worker notes the time right before it fails; the node is this machine, so all clocks are one. The
other worker runs on, and the cell does not wait for its last lines. The peer watches the same job:
`kubectl wait` ends with the operator's condition.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import clusters
from benchmarks.clusters import JOB, Clock, Place, Reader
from benchmarks.figure import Figure, median
from ciao_kernel import background
from ciao_kernel.errors import JobFailed
from ciao_kernel.jupyter.shutdown import Lifetime
from ciao_kernel.model import Event, Job, Output

ROUNDS = 7
MOST = 1.0
"""Seconds: the goal."""
PEER = "kubectl wait --for=condition=Failed"
CELL = f"""\
%framework=tensorflow
%name={JOB}
%worker=2
import json, os, time
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
time.sleep(3 if index else 60)  # kubectl waits by then
print("ends", time.time(), flush=True)
raise ValueError("boom")
"""


class _Watched(Clock):
    """A display that starts the peer, and knows when the program ended."""

    def __init__(self, at: Place) -> None:
        super().__init__()
        argv = ("wait", "--for=condition=Failed", f"tfjob/{JOB}", "--timeout=60s")
        self.peer = Reader(at.kubectl(*argv), at.environment)
        self._text = b""

    def begin(self, job: Job, follow: tuple[str, ...]) -> None:
        super().begin(job, follow)
        self.peer.__enter__()

    def show(self, event: Event) -> None:
        super().show(event)
        if isinstance(event, Output):
            self._text += event.data

    @property
    def ended(self) -> float:
        """When the worker's program ended."""
        found = re.search(rb"ends ([0-9.]+)", self._text)
        if found is None:
            raise RuntimeError("the worker did not say when it ended")
        return float(found[1])


def measure() -> Iterator[Figure]:
    """A worker fails, while the other goes on."""
    with clusters.place("bench-failure") as at:
        if at is None:
            return
        pairs = [_round(at) for _ in range(ROUNDS)]
        ours, peers = [own for own, _ in pairs], [peer for _, peer in pairs]
        took, theirs = median(ours), median(peers)
        note = (
            f"from {min(ours):.2f} to {max(ours):.2f}; peer from {min(peers):.2f} to "
            f"{max(peers):.2f}"
        )
        goal, met = f"at most {MOST:.0f} s", took <= MOST
        yield Figure("worker's exit to the red cell", took, PEER, theirs, "s", goal, met, note)


def _round(at: Place) -> tuple[float, float]:
    """Return the seconds until the cell is red, and until the peer says that the job failed."""

    async def run() -> tuple[float, float]:
        display = _Watched(at)
        try:
            async with at.session(Lifetime()) as session:
                with contextlib.suppress(JobFailed):
                    await session.run(CELL, display, Path("/"))
                red = time.time()
                met = await asyncio.to_thread(display.peer.find, "condition met")
                await background.wait_until_idle(60)
        finally:
            display.peer.__exit__()
        return red - display.ended, met - display.ended

    took = asyncio.run(run())
    at.remove()
    return took
