"""The processes below the agent: found, killed and measured."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Set

_PATIENCE = 5.0
"""Seconds in which killed processes of a run must be gone."""
_CHILDREN = "/proc/{}/task/{}/children"


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
    children_of = _children if _has_lists_of_children() else _all_children().__getitem__
    found, todo = [], [root]
    while todo:
        children = children_of(todo.pop())
        todo += children
        found += [pid for pid in children if pid not in spare and _stat(pid)[0] not in (b"Z", b"X")]
    return found


@functools.cache
def _has_lists_of_children() -> bool:
    """Return whether this Linux tells the children of a process (CONFIG_PROC_CHILDREN)."""
    return os.path.exists(_CHILDREN.format(os.getpid(), os.getpid()))


def _children(pid: int) -> list[int]:
    """Return the children of a process without a look at all others: a machine may have many.

    Linux may leave one out while another one is reaped. Nobody but the agent reaps the agent's own,
    and what is below a killed process becomes one of them, so a new look finds it.
    """
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(_CHILDREN.format(pid, thread), "rb") as file:
                found += map(int, file.read().split())
    return found


def _all_children() -> defaultdict[int, list[int]]:
    """Return the children of all processes."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            found[_stat(int(entry))[1]].append(int(entry))
    return found


def _stat(pid: int) -> tuple[bytes, int]:
    """Return state and parent of a process; those of a dead one if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return fields[0], int(fields[1])
    except OSError:
        return b"X", 0


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
