"""Slow-down of a program that is profiled, in processor time a step, against no profile and py-spy.

CPU time of the program and not the clock: other work of the machine does not count. The program has
stacks of 30 calls, as in training. Windows with and without a profile take turns, and each
profiled one is compared with its two neighbours: the speed of the machine itself changes by more
than a profile costs, but hardly within seconds.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figure import Figure, absent, median, median_range
from ciao_kernel.delivery import inspection, site_folder
from ciao_kernel.delivery.inspection import handler_access, sampler
from ciao_kernel.model import Source, SourceFile

PEER = "py-spy"
ROUNDS, SECONDS = 60, 0.6
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
    ways = ["ciao", *([PEER] if peer else [])]
    ratios: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as made:
        folder, mark = Path(made), secrets.token_hex(8)
        with _program(folder, mark) as program:
            assert program.stdin
            assert program.stdout
            program.stdout.readline()
            _window(program)  # warms up
            quiet = [_window(program)]
            for _ in range(ROUNDS):
                for way in ways:
                    sampling = _sampling(way, folder, mark, program.pid, peer or "")
                    used = _window(program)
                    sampling.kill()
                    sampling.communicate()
                    quiet.append(_window(program))
                    ratios[way].append(2 * used / sum(quiet[-2:]))
            program.stdin.close()
    without, ratio = median(quiet), median(ratios["ciao"])
    what, goal = "CPU of a profiled program, a step", f"at most {LIMIT}x"
    ours, note = ratio * without, _spread(ratios["ciao"])
    yield Figure(what, ours, "no profile", without, "µs", goal, ratio <= LIMIT, note)
    if not peer:
        print(f"    left out: {PEER} is not installed")
        yield absent(what, ours, PEER, "µs", goal)
        return
    theirs = median(ratios[PEER])
    name = f"{PEER} record -r 45"
    note = f"{_spread(ratios[PEER])}; it also holds the program meanwhile, which is no CPU time"
    met = ratio <= NOISE * theirs
    yield Figure(what, ours, name, theirs * without, "µs", f"at most {NOISE}x", met, note)


def _window(program: subprocess.Popen[str]) -> float:
    """Return the microseconds of processor time of a step in one window."""
    assert program.stdin
    assert program.stdout
    program.stdin.write(f"{SECONDS}\n")
    program.stdin.flush()
    return float(program.stdout.readline())


def _spread(ratios: list[float]) -> str:
    low, high = median_range(ratios)
    return f"median of {len(ratios)} pairs, by 95 % between {low:.3f}x and {high:.3f}x"


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


def _sampling(way: str, folder: Path, mark: str, pid: int, peer: str) -> subprocess.Popen[bytes]:
    """Start what samples the program, for longer than a window; return when it has begun."""
    if way == "ciao":
        file = Path(handler_access.find(pid))
        os.truncate(file, 0)
        command = [sys.executable, "-I", "-S", "-c", sampler.START]
        made = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert made.stdin
        text = sampler.program(f"CIAO_JOB={mark}", str(folder), 60.0)
        made.stdin.write(repr(text).encode() + b"\n")
        made.stdin.flush()
        while not file.stat().st_size and made.poll() is None:
            time.sleep(0.002)
        return made
    out = str(folder / "peer.txt")
    words = [peer, "record", "-r", "45", "-d", "60", "-f", "raw", "-o", out, "-p", str(pid)]
    made = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)  # fmt: skip
    assert made.stdout
    for line in made.stdout:
        if b"Sampling" in line:
            break
    return made
