"""Identity of processes, and the processes of a job.

Used by the supervisor, whose interpreter finds no site packages: standard library only, so no
psutil.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

MARK = "CIAO_JOB_ID"
"""Environment variable of every process of a job, grandchildren included."""


def birth(pid: int) -> str | None:
    """Return the start time of a process, as text to compare; None if it is dead or a zombie.

    A process id alone does not identify a process: the number is reused.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name is in parentheses and may contain any character: search the last ")".
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def alive(pid: int, since: str | None) -> bool:
    """Return whether the process with this id and this :func:`birth` is still alive."""
    try:
        return since is not None and birth(pid) == since
    except OSError:
        return True  # An error such as "too many open files" does not mean that it is dead.


def marked(*marks: str) -> list[int]:
    """Return all living processes with the mark of a job, in any session or process group."""
    wanted = {f"{MARK}={mark}".encode() for mark in marks}
    return [
        pid
        for pid, variables in _each("environ")
        if pid != os.getpid() and not wanted.isdisjoint(variables.split(b"\0"))
    ]


def name(folder: Path) -> bool:
    """Return whether a living process has a path inside a folder in its command line."""
    wanted = os.fsencode(f"{folder}{os.sep}")
    return any(wanted in words for _, words in _each("cmdline"))


def kill(pids: Iterable[int], number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to processes that may be gone already."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def sweep(*marks: str, patience: float = 5.0) -> None:
    """Kill all processes of jobs except this process; return when none is left.

    The search is repeated until it finds nothing twice in a row: a process may start another just
    before it dies, and has no environment for a moment while it executes another program.
    """
    until = time.monotonic() + patience
    clean = 0
    while clean < 2 and time.monotonic() < until:
        pids = marked(*marks)
        clean = 0 if pids else clean + 1
        kill(pids)
        time.sleep(0.01)


def _each(file: str) -> Iterator[tuple[int, bytes]]:
    """Yield the id of each process whose file this user may read, and the file's content."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                content = (entry / file).read_bytes()
                yield int(entry.name), content
