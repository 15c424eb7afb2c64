"""From a line written by a local replica to the line in the notebook, against `tail -f` of its log.

A line each second: each comes after a quiet moment, and nothing else has to be shown.
"""

from __future__ import annotations

import contextlib
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.clusters import Reader
from benchmarks.figure import Figure
from benchmarks.kernels import started

LINES = 30
EARLY = 5
"""Lines at the beginning that do not count: not all readers are there yet."""
MOST = 0.01
"""Seconds over the peer, p50."""
CELL = f"""%framework=tensorflow
%worker=1
import time
for number in range({LINES}):
    print("line", number, time.time(), flush=True)
    time.sleep(1)
"""
_LINE = re.compile(r"line (\d+) (\d+\.\d+)")


def measure() -> Iterator[Figure]:
    """One job, two readers."""
    came: list[tuple[float, str]] = []

    def hook(message: dict) -> None:  # type: ignore[type-arg]
        if message["msg_type"] == "stream":
            at = time.time()
            came.extend((at, line) for line in message["content"]["text"].splitlines())

    with contextlib.ExitStack() as opened:
        storage = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        env = {"CIAO_STORAGE": str(storage), "KUBECONFIG": ""}
        _, client, _ = opened.enter_context(started("ciao", env))
        cell = threading.Thread(
            target=client.execute_interactive,
            args=(CELL,),
            kwargs={"timeout": 600, "output_hook": hook},
        )
        cell.start()
        while not came:  # then the log is there
            time.sleep(0.01)
        (log,) = storage.glob("**/logs/worker-0.log")
        tail = opened.enter_context(Reader(["tail", "-n", "+1", "-f", str(log)]))
        cell.join()
        time.sleep(0.5)
        theirs = _delays(tail.lines)
    ours = _delays(came)
    a, b = statistics.median(ours), statistics.median(theirs)
    yield Figure(
        "a line each second in the notebook, p50",
        a * 1e3,
        "tail -f",
        b * 1e3,
        "ms",
        f"at most {MOST * 1e3:.0f} ms over",
        a - b <= MOST,
        f"{(a - b) * 1e3:+.1f} ms; the slowest {max(ours) * 1e3:.0f} ms, "
        f"peer {max(theirs) * 1e3:.0f} ms",
    )


def _delays(lines: Sequence[tuple[float, str]]) -> list[float]:
    found = [(at, match) for at, line in lines if (match := _LINE.search(line))]
    numbers = [int(match[1]) for _, match in found]
    assert numbers == list(range(LINES)), f"{len(numbers)} lines of {LINES}"
    return [at - float(match[2]) for at, match in found][EARLY:]
