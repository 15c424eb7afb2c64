"""The processes below the agent: found, killed and measured."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Set

_PATIENCE = 5.0
"""Seconds in which killed processes of a run must be gone."""


def kill(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def signal_all(number: int, spare: Set[int]) -> None:
    """Send a signal to all processes below this one, except those to spare."""
    for pid in _descendants(os.getpid(), spare):
        kill(pid, number)


def kill_all(spare: Set[int]) -> int:
    """Kill all processes below this one, except those to spare.

    Returns:
        How many there were at first.
    """
    until = time.monotonic() + _PATIENCE
    first = None
    while time.monotonic() < until:
        left = _descendants(os.getpid(), spare)
        first = len(left) if first is None else first
        if not left:
            break
        for pid in left:
            kill(pid, signal.SIGKILL)
        list(reaped())
        time.sleep(0.002)
    list(reaped())
    return first or 0


def reaped() -> Iterator[tuple[int, int]]:
    """Yield the children that have ended, each with its exit code."""
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            yield found[0], os.waitstatus_to_exitcode(found[1])


def _descendants(root: int, spare: Set[int]) -> list[int]:
    """Return the living processes below one, except those to spare."""
    children: dict[int, list[int]] = {}
    dead = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                with open(f"/proc/{entry}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry))
                if fields[0] in (b"Z", b"X"):
                    dead.add(int(entry))
    found, todo = [], [root]
    while todo:
        for pid in children.get(todo.pop(), ()):
            todo.append(pid)
            if pid not in spare and pid not in dead:
                found.append(pid)
    return found


def memory_of(pid: int) -> int:
    """Return the resident memory of a process in MB; 0 if it is unknown."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) // 1024 for line in file if line.startswith("VmRSS"))
    except (OSError, StopIteration):
        return 0


def memory_kills() -> int:
    """Return how many processes of this container were killed for its memory limit.

    The files are those of cgroup v2 and v1 (Linux, admin-guide/cgroup-v2 and cgroup-v1/memory).
    """
    for name in ("memory.events", "memory/memory.oom_control"):
        place = f"/sys/fs/cgroup/{name}"
        with contextlib.suppress(OSError, ValueError, StopIteration), open(place, "rb") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(b"oom_kill "))
    return 0
