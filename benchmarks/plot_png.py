"""The picture that a notebook keeps of ``%plot``: ciao's own PNG writer against Pillow."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from benchmarks.figure import Figure, absent, median
from ciao_kernel.display.plot import chart
from ciao_kernel.display.plot.metrics import Metrics
from ciao_kernel.display.plot.svg import Picture
from ciao_kernel.model import Replica

Writer = Callable[[Picture], bytes]

RUNS = 5
OURS, PEER = "ciao_kernel.display.plot.png", "benchmarks.pillow_png"
CHARTS = {"2 replicas": (1, 2), "8 replicas": (1, 8), "12 metrics of 8 replicas": (12, 8)}
"""Numbers of metrics and of replicas."""
_STEPS = 500
_NONE = math.nan, math.nan


def measure() -> Iterator[Figure]:
    """Draw each chart by both in turns; then each in fresh interpreters."""
    ours = import_module(OURS).png
    try:
        peer, name = import_module(PEER).png, import_module(PEER).NAME
    except ImportError as error:
        print(f"    left out: Pillow cannot be had: {error}", flush=True)
        peer, name = None, "Pillow"

    def figure(what: str, both: tuple[float, float], unit: str, most: float) -> Figure:
        goal = f"at most {most:g}x"
        if peer is None:
            return absent(what, both[0], name, unit, goal)
        return Figure(what, both[0], name, both[1], unit, goal, both[0] <= most * both[1])

    for title, (metrics, replicas) in CHARTS.items():
        picture = _picture(metrics, replicas)
        times, sizes = _drawn(picture, ours, peer)
        yield figure(f"{title}: CPU to draw", times, "ms", 2)
        yield figure(f"{title}: size", sizes, "kB", 1.5)
    fresh = [(_fresh(OURS), _fresh(PEER) if peer else _NONE) for _ in range(RUNS)]
    imports, memory = (
        (median([mine[place] for mine, _ in fresh]), median([theirs[place] for _, theirs in fresh]))
        for place in (0, 1)
    )
    yield figure("CPU to import", imports, "ms", 0.5)
    yield figure(f"{title}: memory to draw", memory, "MB", 0.25)


def _picture(metrics: int, replicas: int) -> Picture:
    """The curves of a training: they fall, and they are never smooth."""
    names = tuple(f"loss{number}" for number in range(metrics))
    made = Metrics(names)
    for step in range(_STEPS):
        for index in range(replicas):
            value = 0.3 + index / 10 + 2 * math.exp(-5 * step / _STEPS)
            value *= 1 + math.sin((index + 7) * step**2) / 20
            words = " ".join(f"{name} {value:.5f}" for name in names)
            made.add(Replica("worker", index), f"step {step} {words}\n".encode())
    return chart.draw(made, "loss")


def _drawn(
    picture: Picture, ours: Writer, peer: Writer | None
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Milliseconds of both writers, and kilobytes of both."""
    times: tuple[list[float], list[float]] = [], []
    sizes = [math.nan, math.nan]
    for _ in range(RUNS):
        for place, writer in enumerate((ours, peer)):
            began = time.process_time()
            sizes[place] = len(writer(picture)) / 1e3 if writer else math.nan
            times[place].append((time.process_time() - began) * 1e3)
    return (median(times[0]), median(times[1])), (sizes[0], sizes[1])


def _fresh(module: str) -> tuple[float, float]:
    """Milliseconds to import a writer, and megabytes that it takes for the largest chart."""
    code = f"from benchmarks import plot_png; plot_png.child({module!r})"
    run = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    milliseconds, megabytes = json.loads(run.stdout)
    return milliseconds, megabytes


def child(module: str) -> None:
    """Draw the largest chart once, and print what it took; in an interpreter of its own."""
    picture = _picture(*list(CHARTS.values())[-1])
    before, began = _peak(), time.process_time()
    png = import_module(module).png
    took = (time.process_time() - began) * 1e3
    png(picture)
    print(json.dumps([took, _peak() - before]))


def _peak() -> float:
    """The most memory so far, in megabytes; getrusage() would count that of the parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM"))
