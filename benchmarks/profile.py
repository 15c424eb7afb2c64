"""Slow-down of a program that is profiled, in processor time a step, against no profile and py-spy.

CPU time of the program and not the clock: other work of the machine does not count. The program has
stacks of 30 calls, as in training; the three ways take turns.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figure import Figure, absent, median
from ciao_kernel.delivery import inspection, site_folder
from ciao_kernel.delivery.inspection import sampler
from ciao_kernel.model import Source, SourceFile

PEER = "py-spy"
ROUNDS, SECONDS = 25, 1.5
LIMIT = 1.02
NOISE = 1.05
PROGRAM = """
import sys, time

def step(depth):
    if depth:
        return step(depth - 1)
    return sum(number * number for number in range(2000))

print("begins", flush=True)
for line in sys.stdin:
    steps, used, until = 0, time.process_time(), time.monotonic() + float(line)
    while time.monotonic() < until:
        step(30)
        steps += 1
    print((time.process_time() - used) / steps * 1e6, flush=True)
"""


def measure() -> Iterator[Figure]:
    """Run rounds without a profile, with ciao's, and with py-spy's if it is installed."""
    peer = shutil.which(PEER)
    ways = ["nothing", "ciao", *([PEER] if peer else [])]
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as made:
        folder, mark = Path(made), secrets.token_hex(8)
        with _program(folder, mark) as program:
            assert program.stdin
            assert program.stdout
            program.stdout.readline()
            for number in range(ROUNDS + 1):
                for way in ways:
                    sampling = _sampling(way, folder, mark, program.pid, peer or "")
                    program.stdin.write(f"{SECONDS}\n")
                    program.stdin.flush()
                    used = float(program.stdout.readline())
                    if sampling is not None:
                        sampling.kill()
                        sampling.communicate()
                    if number:  # the first round warms up
                        seconds[way].append(used)
            program.stdin.close()
    ours, without = median(seconds["ciao"]), median(seconds["nothing"])
    note = f"from {min(seconds['ciao']):.0f} to {max(seconds['ciao']):.0f}"
    goal = f"at most {LIMIT}x"
    what = "CPU of a profiled program, a step"
    met = ours <= LIMIT * without
    yield Figure(what, ours, "no profile", without, "µs", goal, met, note)
    if not peer:
        print(f"    left out: {PEER} is not installed")
        yield absent(what, ours, PEER, "µs", goal)
        return
    theirs = median(seconds[PEER])
    name = f"{PEER} record -r 45"
    note = "it also holds the program meanwhile, which is no CPU time"
    yield Figure(what, ours, name, theirs, "µs", f"at most {NOISE}x", ours <= NOISE * theirs, note)


def _program(folder: Path, mark: str) -> subprocess.Popen[str]:
    for file in inspection.with_files(Source(SourceFile("program.py", b""))).own:
        (folder / file.path).parent.mkdir(exist_ok=True)
        (folder / file.path).write_bytes(file.data or b"")
    (folder / "program.py").write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": site_folder.path(str(folder)), "CIAO_JOB": mark}
    command = [sys.executable, str(folder / "program.py")]
    return subprocess.Popen(
        command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def _sampling(
    way: str, folder: Path, mark: str, pid: int, peer: str
) -> subprocess.Popen[bytes] | None:
    """Start what samples the program, for longer than a round."""
    if way == "nothing":
        return None
    if way == "ciao":
        command = [sys.executable, "-I", "-S", "-c", sampler.START]
        made = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert made.stdin
        text = sampler.program(f"CIAO_JOB={mark}", str(folder), 2 * SECONDS)
        made.stdin.write(repr(text).encode() + b"\n")
        made.stdin.flush()
        return made
    out = str(folder / "peer.txt")
    words = [peer, "record", "-r", "45", "-d", "60", "-f", "raw", "-o", out, "-p", str(pid)]
    return subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
