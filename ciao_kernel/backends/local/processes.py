"""Identity of processes, and the processes of a job.

Used by the supervisor, so standard library only at import. Reads ``/proc`` on Linux, and uses
psutil elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

MARK = "CIAO_JOB_ID"
"""Environment variable of every process of a job, grandchildren included."""

_LINUX = sys.platform.startswith("linux")


def birth(pid: int) -> str | None:
    """Return the start time of a process, as text to compare; None if it is dead or a zombie.

    A process id alone does not identify a process: the number is reused.
    """
    if not _LINUX:
        return _birth_psutil(pid)
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
    if not _LINUX:
        return _marked_psutil(marks)
    wanted = {f"{MARK}={mark}".encode() for mark in marks}
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if not wanted.isdisjoint((entry / "environ").read_bytes().split(b"\0")):
                    found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def name(folder: Path) -> bool:
    """Return whether a living process has a path inside a folder in its command line."""
    wanted = f"{folder}{os.sep}"
    if not _LINUX:
        return _name_psutil(wanted)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.fsencode(wanted) in (entry / "cmdline").read_bytes():
                    return True
    return False


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


def _birth_psutil(pid: int) -> str | None:
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        return str(process.create_time())
    except psutil.Error:
        return None


def _name_psutil(text: str) -> bool:
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(text in word for word in process.cmdline()):
                return True
    return False


def _marked_psutil(marks: tuple[str, ...]) -> list[int]:
    import psutil

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(MARK) in marks:
                found.append(process.pid)
    return found
