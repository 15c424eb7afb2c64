"""From a line written in a pod to the line at its reader: all readers follow the same pod.

Ours are a cell, whose lines a client of the kernel gets, and `ciao attach` in a pipe. Twenty lines
a second are more messages than a notebook gets; of one a second, each comes after a quiet moment.
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
RATES = (20, 1)
"""Lines a second."""
EARLY = 5
"""Seconds at the beginning that do not count: not all readers are there yet."""
MOST = {"cell": (0.15, 0.3), "attach": (0.1, 0.2)}
"""Seconds, p50 and p99, of many lines: notebooks are drawn ten times a second."""
OVER = 0.01
"""Seconds over the peer, p50, of a line after a quiet moment."""
CELL = f"""%framework=tensorflow
%name={JOB}
%worker=1
%lines=all
import time
for number in range({{lines}}):
    print("line", number, time.time(), flush=True)
    time.sleep(1 / {{rate}})
"""
_LINE = re.compile(r"line (\d+) (\d+\.\d+)")


def measure() -> Iterator[Figure]:
    """One job of each rate, four readers."""
    with clusters.place("bench-latency") as at:
        if at is None:
            return
        for rate in RATES:
            yield from _measure(at, rate)


def _measure(at: Place, rate: int) -> list[Figure]:
    delays: dict[str, list[float]] = {}
    with started("ciao", at.environment) as (_, client, _), contextlib.ExitStack() as others:
        came: list[tuple[float, str]] = []

        def hook(message: dict) -> None:  # type: ignore[type-arg]
            if message["msg_type"] == "stream":
                at = time.time()
                came.extend((at, line) for line in message["content"]["text"].splitlines())

        cell = threading.Thread(
            target=client.execute_interactive,
            args=(CELL.format(lines=(EARLY + SECONDS) * rate, rate=rate),),
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
        delays["cell"] = _delays("cell", came, rate)
        delays |= {name: _delays(name, reader.lines, rate) for name, reader in running.items()}
    at.remove()
    return [
        _figure(delays, ours, part, peer, rate)
        for ours in ("cell", "attach")
        for part in ((50, 99) if rate > 1 else (50,))
        for peer in ("kubectl logs -f", "stern")
    ]


def _delays(name: str, lines: Sequence[tuple[float, str]], rate: int) -> list[float]:
    found = [(at, match) for at, line in lines if (match := _LINE.search(line))]
    numbers = [int(match[1]) for _, match in found]
    wanted = list(range((EARLY + SECONDS) * rate))
    assert numbers == wanted, f"{name}: {len(numbers)} lines of {len(wanted)}, from {numbers[:1]}"
    return [at - float(match[2]) for at, match in found][EARLY * rate :]


def _figure(delays: dict[str, list[float]], name: str, part: int, peer: str, rate: int) -> Figure:
    ours, theirs = (statistics.quantiles(delays[one], n=100)[part - 1] for one in (name, peer))
    most = MOST[name][part == 99]
    met, goal = ours <= most, f"at most {most * 1e3:.0f} ms"
    if rate == 1:
        met, goal = ours - theirs <= OVER, f"at most {OVER * 1e3:.0f} ms over"
    where = "the notebook" if name == "cell" else "`ciao attach`"
    what = f"line written to {where}, {rate} a second, p{part}"
    return Figure(what, ours * 1e3, peer, theirs * 1e3, "ms", goal, met)
