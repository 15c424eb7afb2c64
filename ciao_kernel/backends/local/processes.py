"""Questions about processes: is it still the same one, and which belong to a job.

Used by the supervisor, so standard library only at import. On Linux ``/proc`` answers; psutil
does elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

MARK = "CIAO_JOB_ID"
"""Variable in the environment of every process of a job, its grandchildren's too."""

_LINUX = sys.platform.startswith("linux")


def birth(pid: int) -> str | None:
    """When a process started, as text to compare; None once it is dead or a zombie.

    A process id alone is no identity: the number is used again.
    """
    if not _LINUX:
        return _birth_psutil(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command's name stands in parentheses and may hold anything, so read from the last ")".
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def alive(pid: int, since: str) -> bool:
    """Whether the process that had this id and this :func:`birth` still lives."""
    return birth(pid) == since


def marked(mark: str) -> list[int]:
    """All living processes that carry a job's mark, however far they strayed from it."""
    wanted = f"{MARK}={mark}".encode()
    if not _LINUX:
        return _marked_psutil(mark)
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def kill(pids: Iterable[int], number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to processes that may be gone already."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _birth_psutil(pid: int) -> str | None:
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        return str(process.create_time())
    except psutil.Error:
        return None


def _marked_psutil(mark: str) -> list[int]:
    import psutil

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark:
                found.append(process.pid)
    return found
