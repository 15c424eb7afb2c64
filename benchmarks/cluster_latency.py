"""From a line written in a pod to the line at its reader: all readers follow the same pod.

Ours are a cell, whose lines a client of the kernel gets, and `ciao attach` in a pipe.
"""

from __future__ import annotations

import contextlib
import re
import statistics
import threading
import time
from collections.abc import Iterator, Sequence

from benchmarks import clusters
from benchmarks.clusters import JOB, Place, Reader
from benchmarks.figure import Figure
from benchmarks.kernels import started

SECONDS = 30
RATE = 20
"""Lines a second."""
EARLY = 100
"""Lines at the beginning that do not count: not all readers are there yet."""
MOST = {"cell": (0.15, 0.3), "attach": (0.1, 0.2)}
"""Seconds, p50 and p99: notebooks are drawn ten times a second, and streams read twenty times."""
CELL = f"""%framework=tensorflow
%name={JOB}
%worker=1
import time
for number in range({EARLY + SECONDS * RATE}):
    print("line", number, time.time(), flush=True)
    time.sleep(1 / {RATE})
"""
_LINE = re.compile(r"line (\d+) (\d+\.\d+)")


def measure() -> Iterator[Figure]:
    """One job, four readers."""
    with clusters.place("bench-latency") as at:
        if at is not None:
            yield from _measure(at)


def _measure(at: Place) -> list[Figure]:
    delays: dict[str, list[float]] = {}
    with started("ciao", at.environment) as (_, client, _), contextlib.ExitStack() as others:
        came: list[tuple[float, str]] = []

        def hook(message: dict) -> None:  # type: ignore[type-arg]
            if message["msg_type"] == "stream":
                at = time.time()
                came.extend((at, line) for line in message["content"]["text"].splitlines())

        cell = threading.Thread(
            target=client.execute_interactive,
            args=(CELL,),
            kwargs={"timeout": 600, "output_hook": hook},
        )
        cell.start()
        while not came:  # then the pod runs, which kubectl and attach expect
            time.sleep(0.01)
        readers = {
            "kubectl logs -f": at.kubectl("logs", "-f", f"{JOB}-worker-0"),
            "stern": at.stern(),
            "attach": at.ciao("attach", JOB),
        }
        running = {
            name: others.enter_context(Reader(argv, at.environment))
            for name, argv in readers.items()
        }
        cell.join()
        time.sleep(1)
        delays["cell"] = _delays("cell", came)
        delays |= {name: _delays(name, reader.lines) for name, reader in running.items()}
    at.remove()
    return [
        _figure(delays, ours, part, peer)
        for ours in ("cell", "attach")
        for part in (50, 99)
        for peer in ("kubectl logs -f", "stern")
    ]


def _delays(name: str, lines: Sequence[tuple[float, str]]) -> list[float]:
    found = [(at, match) for at, line in lines if (match := _LINE.search(line))]
    numbers = [int(match[1]) for _, match in found]
    wanted = list(range(EARLY + SECONDS * RATE))
    assert numbers == wanted, f"{name}: {len(numbers)} lines of {len(wanted)}, from {numbers[:1]}"
    return [at - float(match[2]) for at, match in found][EARLY:]


def _figure(delays: dict[str, list[float]], name: str, part: int, peer: str) -> Figure:
    ours, theirs = (statistics.quantiles(delays[one], n=100)[part - 1] for one in (name, peer))
    most = MOST[name][part == 99]
    where = "the notebook" if name == "cell" else "`ciao attach`"
    what = f"line written to {where}, p{part}"
    goal = f"at most {most * 1e3:.0f} ms"
    return Figure(what, ours * 1e3, peer, theirs * 1e3, "ms", goal, ours <= most)
