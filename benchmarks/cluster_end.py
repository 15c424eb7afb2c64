"""From the job's condition to the end of its cell.

The condition's own time has whole seconds, so an observer with connections of its own notes when
it comes. Peers follow the logs to their ends first: those of the replicas that did not fail.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator

from benchmarks import clusters, sdk
from benchmarks.clusters import JOB, Place, Reader
from benchmarks.figure import Figure, median

ROUNDS = 5
OF_SDK, OF_SDK_MOST = 2, 60
"""Rounds, and seconds that one may last."""
MOST = 1.0
"""Seconds: the goal."""
HEADER = f"%framework=tensorflow\n%name={JOB}\n%worker=2\n"
SUCCEEDS = HEADER + "print('first')\n"
# The same as `fails` of sdk_client.py.
FAILS = (
    HEADER
    + """\
import json, os, time
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
for second in range(2 if index else 20):
    print("step", second)
    time.sleep(1)
if index:
    raise ValueError("boom")
"""
)


def measure() -> Iterator[Figure]:
    """A job that succeeds, and one of which a worker fails while the other goes on."""
    with clusters.place("bench-end") as at:
        if at is None:
            return
        succeeded = [_ours(at, SUCCEEDS) for _ in range(ROUNDS)]
        failed = [_ours(at, FAILS) for _ in range(ROUNDS)]
        interpreter = sdk.python()
        for what, ours, work in (
            ("job succeeded to the cell's end", succeeded, "first"),
            ("worker failed to the cell's end", failed, "fails"),
        ):
            theirs = [_sdk(at, interpreter, work) for _ in range(OF_SDK)] if interpreter else []
            name, peer = (sdk.NAME, median(theirs)) if theirs else ("the goal", MOST)
            note = f"from {min(ours):.2f} to {max(ours):.2f}"
            goal, met = f"each at most {MOST:.0f} s", max(ours) <= MOST
            yield Figure(what, median(ours), name, peer, "s", goal, met, note)


def _ours(at: Place, cell: str) -> float:
    async def run() -> float:
        async with at.session() as session:
            return (await clusters.run(session, cell))[1]

    with _observer(at) as observer:
        took = asyncio.run(run()) - _condition(observer)
    at.remove()
    return took


def _sdk(at: Place, interpreter: str, work: str) -> float:
    with _observer(at) as observer, sdk.reader(interpreter, at, work) as client:
        client.wait(OF_SDK_MOST)  # it may wait for ever: a stream that it lost never ends for it
        took = min(sdk.said(client.lines, "returned"), time.time()) - _condition(observer)
    at.remove()
    return took


def _observer(at: Place) -> Reader:
    argv = [sys.executable, "-m", "benchmarks.observer", at.namespace.name, JOB]
    return Reader(argv, at.environment)


def _condition(observer: Reader) -> float:
    """When the job was over."""
    observer.find('"condition": "')
    while True:
        for _, line in list(observer.lines):
            seen = json.loads(line)
            if seen["condition"] in ("Succeeded", "Failed"):
                return float(seen["at"])
