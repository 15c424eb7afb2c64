"""The stacks of eight replicas of this machine, against py-spy: for `ciao stacks`."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.figure import Figure, absent, median
from ciao_kernel.delivery import inspection, site_folder
from ciao_kernel.delivery.inspection import stack_reader
from ciao_kernel.model import Source, SourceFile

PEER = "py-spy"
REPLICAS, ROUNDS = 8, 15
LIMIT = 1000.0
PATIENCE = 0.25
"""Seconds, as the local backend has them."""
PROGRAMS = {
    "that run Python": (
        "import time\nprint('begins', flush=True)\nwhile True:\n    time.sleep(0.01)\n"
    ),
    "of which half are in C": (
        "import hashlib, os, time\nprint('begins', flush=True)\n"
        "while int(os.environ['CIAO_REPLICA'][-1]) % 2:\n    time.sleep(0.01)\n"
        "os.nice(19)\nhashlib.pbkdf2_hmac('sha256', b'a', b'b', 2**31 - 1)\n"
    ),
}


def measure() -> Iterator[Figure]:
    """Ask eight processes where they stand; those in C answer after the patience alone."""
    peer = shutil.which(PEER)
    for name, text in PROGRAMS.items():
        with tempfile.TemporaryDirectory() as made, ExitStack() as stack:
            folder, mark = Path(made), secrets.token_hex(8)
            started = _start(text, folder, mark, stack)
            ours = _median(lambda mark=mark, made=made: _look(mark, made))
            what, goal = f"stacks of {REPLICAS} replicas {name}", f"at most {LIMIT:,.0f} ms"
            if not peer:
                print(f"    left out: {PEER} is not installed")
                yield absent(what, ours, PEER, "ms", goal)
                continue
            theirs = _median(lambda started=started, peer=peer: _dump(started, peer))
            yield Figure(what, ours, f"{PEER} dump of each", theirs, "ms", goal, ours <= LIMIT)


def _start(text: str, folder: Path, mark: str, stack: ExitStack) -> list[subprocess.Popen[str]]:
    """Start the programs with the handler; they end with the stack."""
    for file in inspection.with_files(Source(SourceFile("program.py", b""))).own:
        (folder / file.path).parent.mkdir(exist_ok=True)
        (folder / file.path).write_bytes(file.data or b"")
    (folder / "program.py").write_text(text)
    env = {**os.environ, "PYTHONPATH": site_folder.path(str(folder)), "CIAO_JOB": mark}
    started = []
    for number in range(REPLICAS):
        command = [sys.executable, str(folder / "program.py")]
        own = {**env, "CIAO_REPLICA": f"worker-{number}"}
        one = subprocess.Popen(command, env=own, text=True, stdout=subprocess.PIPE)
        stack.enter_context(one)
        stack.callback(one.kill)
        started.append(one)
    for one in started:
        assert one.stdout
        one.stdout.readline()
    return started


def _median(work: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1000)
    return median(times)


def _look(mark: str, folder: str) -> None:
    found = stack_reader.look(f"CIAO_JOB={mark}", folder, PATIENCE)
    assert len(found) == REPLICAS


def _dump(started: list[subprocess.Popen[str]], peer: str) -> None:
    for one in started:
        subprocess.run([peer, "dump", "-p", str(one.pid)], check=True, stdout=subprocess.DEVNULL)
