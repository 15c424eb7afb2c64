"""Lines of 1, 8 and 64 replicas, by `ciao attach` and by stern: both write each line to a file.

Live: the replicas write at a rate that the node carries, and both follow at the same time.
Processor time counts while lines are written, so that no start is in it. Replay: the
replicas have ended, and the readers take turns at all that was written. Lost and doubled lines
are counted in the files.

One log cannot come faster than its server sends it, and how fast that is depends on the reader: the
kubelet flushes each line, and the API server passes on what has come until it has a processor.
Where stern keeps both cores busy, that is more lines at a time, for a third of the server's work. A
reader that is idle, such as curl, gets few lines at a time and waits longer. So the replay of one
replica has ``kubectl logs`` as a second peer, and a figure without the start of either program,
which takes a third of the time of ``ciao attach``.
"""

from __future__ import annotations

import math
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import clusters
from benchmarks.clusters import JOB, Place, Program, Used
from benchmarks.figure import Figure, median

# Replicas, seconds until the last of them runs, and lines of each in the replay. A node keeps
# 10 MB of a container's log for who comes later.
SIZES = ((1, 8, 100_000), (8, 15, 50_000), (64, 90, 6_000))
RATE, SECONDS = 2048, 20
"""Lines a second of all replicas together, for so long."""
ROUNDS = 3
HEADER = f"""%framework=tensorflow
%name={JOB}
%worker={{replicas}}
%successPolicy=allWorkers
%detach
"""
LIVE = (
    HEADER
    + """\
import sys, time
while time.time() < {start}:
    time.sleep(0.1)
number = 0
while number < {each}:
    due = min({each}, int((time.time() - {start}) * {each} / {seconds}) + 1)
    for number in range(number, due):
        sys.stdout.write(f"step {{number}} loss 0.31 accuracy 0.97\\n")
        sys.stdout.flush()
    number = due
    time.sleep({pause})
"""
)
REPLAY = (
    HEADER
    + """\
import sys
for start in range(0, {each}, 100):
    lines = [f"step {{n}} loss 0.31 accuracy 0.97\\n" for n in range(start, start + 100)]
    sys.stdout.write("".join(lines))
"""
)
_LINE = re.compile(rb"worker-(\d+)\b.*?\bstep (\d+) loss 0\.31 accuracy 0\.97$", re.M)


def measure() -> Iterator[Figure]:
    """Live and replay of each size."""
    with clusters.place("bench-lines") as at, tempfile.TemporaryDirectory() as folder:
        if at is None:
            return
        for replicas, wait, each in SIZES:
            yield from _live(at, Path(folder), replicas, wait)
            at.remove()
            yield from _replay(at, Path(folder), replicas, each)
            at.remove()


def _live(at: Place, folder: Path, replicas: int, wait: float) -> Iterator[Figure]:
    each = RATE * SECONDS // replicas
    total = each * replicas
    start = time.time() + wait
    pause = max(0.005, SECONDS / each)
    at.submit(LIVE.format(replicas=replicas, start=start, each=each, seconds=SECONDS, pause=pause))
    ours = Program(at.ciao("attach", JOB), folder / "ciao", at.environment).start()
    stern = Program(at.stern(), folder / "stern", at.environment).start()
    late = _running_after(at, replicas) - start
    time.sleep(max(0.0, start - 1 - time.time()))
    before = ours.cpu(), stern.cpu()
    time.sleep(max(0.0, start + SECONDS + 1 - time.time()))
    after = ours.cpu(), stern.cpu()
    came = _lines(ours.file), _lines(stern.file)
    mine = ours.end()
    _wait_for(stern.file, total)
    theirs = stern.stop()
    a, b = (
        (then - now) * 1e6 / lines if lines else math.nan
        for now, then, lines in zip(before, after, came, strict=True)
    )
    what = f"{replicas} replicas, {RATE:,} lines/s"
    own, fault = _counted(ours.file, replicas, each)
    note = f"ciao {own}, stern {_counted(stern.file, replicas, each)[0]}"
    note += f"; the last replica ran {late:.0f} s late" if late > 0 else ""
    note += "".join(
        f"; {name} had {lines:,} of {total:,} when the last were written"
        for name, lines in zip(("ciao", "stern"), came, strict=True)
        if lines < total
    )
    yield Figure(
        f"{what}: CPU for 1M lines", a, "stern", b, "s", "at most 1x, lost 0, doubled 0",
        a <= b and not fault, note,
    )  # fmt: skip
    yield _memory(what, mine, theirs)


def _replay(at: Place, folder: Path, replicas: int, each: int) -> Iterator[Figure]:
    at.submit(REPLAY.format(replicas=replicas, each=each))
    at.namespace.wait_for_job(f"tfjob/{JOB}", seconds=300)
    while any(pod["status"]["phase"] != "Succeeded" for pod in at.namespace.get("pods")["items"]):
        time.sleep(0.5)
    ours, peers, plain = [], [], []
    stern = at.stern("--no-follow")
    kubectl = at.kubectl("logs", "--timestamps", f"{JOB}-worker-0")
    for _ in range(ROUNDS):
        ours.append(Program(at.ciao("attach", JOB), folder / "ciao", at.environment).start().end())
        peers.append(Program(stern, folder / "stern", at.environment).start().end())
        if replicas == 1:
            plain.append(Program(kubectl, folder / "kubectl", at.environment).start().end())
    total = each * replicas
    what = f"{replicas} replicas, replay of {total:,} lines"
    speeds = [median([total / one.seconds for one in used]) for used in (ours, peers)]
    cpu = [median([one.cpu * 1e6 / total for one in used]) for used in (ours, peers)]
    own, fault = _counted(folder / "ciao", replicas, each)
    note = f"ciao {own}, stern {_counted(folder / 'stern', replicas, each)[0]}"
    yield Figure(
        what,
        speeds[0],
        "stern",
        speeds[1],
        "lines/s",
        "at least 1x, lost 0, doubled 0",
        speeds[0] >= speeds[1] and not fault,
        note,
    )
    if plain:
        speed = median([total / one.seconds for one in plain])
        met = speeds[0] >= 0.5 * speed
        goal = "at least 0.5x, starts included"
        yield Figure(what, speeds[0], "kubectl logs", speed, "lines/s", goal, met)
        yield _flow(what, total, ours, peers)
    yield Figure(
        f"{what}: CPU for 1M lines",
        cpu[0],
        "stern",
        cpu[1],
        "s",
        "at most 2x, starts included",
        cpu[0] <= 2 * cpu[1],
    )
    yield _memory(what, ours[-1], peers[-1])


def _flow(what: str, lines: int, ours: Sequence[Used], stern: Sequence[Used]) -> Figure:
    """The speed at which lines come: what a reader has who started long before."""
    a, b = (
        median([lines / max(0.005, one.wrote.last - one.wrote.first) for one in used])
        for used in (ours, stern)
    )
    return Figure(
        f"{what}: from the first line to the last", a, "stern", b, "lines/s", "at least 1x", a >= b
    )


def _memory(what: str, ours: Used, stern: Used) -> Figure:
    a, b = ours.peak / 1e6, stern.peak / 1e6
    return Figure(f"{what}: peak memory", a, "stern", b, "MB", "at most 150 MB", a <= 150)


def _running_after(at: Place, replicas: int) -> float:
    """Wait until all replicas run; return when that was."""
    while True:
        pods = at.namespace.get("pods")["items"]
        if sum(pod["status"]["phase"] == "Running" for pod in pods) >= replicas:
            return time.time()
        time.sleep(0.5)


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n")


def _wait_for(file: Path, lines: int) -> None:
    """Wait until so many lines came, or nothing for a minute: stern is slow to find many pods."""
    size, last = -1, time.monotonic()
    while _lines(file) < lines and time.monotonic() - last < 60:
        if size != (size := file.stat().st_size):
            last = time.monotonic()
        time.sleep(0.5)


def _counted(file: Path, replicas: int, each: int) -> tuple[str, bool]:
    """Lost and doubled lines, for a note; and whether there are any."""
    found = Counter(_LINE.findall(file.read_bytes()))
    lost = replicas * each - len(found)
    doubled = sum(found.values()) - len(found)
    return f"lost {lost}, doubled {doubled}", bool(lost or doubled)
