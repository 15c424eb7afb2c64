"""Identity of processes, and the processes of a job.

Used by the supervisor, whose interpreter finds no site packages: standard library only, so no
psutil.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

MARK = "CIAO_JOB_ID"
"""Environment variable of every process of a job, grandchildren included."""
_DEAD = (b"Z", b"X")
"""States of a process that has ended: zombie, and dead."""
_LOOKS = 20
"""How often the environment of a process is read if it has none at first."""
_PATIENCE = 5.0
"""Seconds after which a search for processes that are left gives up."""


def birth(pid: int) -> str | None:
    """Return the start time of a process, as text to compare; None if it is dead or a zombie.

    A process id alone does not identify a process: the number is reused.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = _fields(stat)
    return None if fields[0] in _DEAD else fields[19].decode()


def _fields(stat: bytes) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the third, the state, on (proc(5))."""
    # The command's name is in parentheses and may contain any character: search the last ")".
    return stat[stat.rindex(b")") + 2 :].split()


def alive(pid: int, since: str | None) -> bool:
    """Return whether the process with this id and this :func:`birth` is still alive."""
    try:
        return since is not None and birth(pid) == since
    except OSError:
        return True  # An error such as "too many open files" does not mean that it is dead.


def marked(*marks: str) -> list[int]:
    """Return all living processes of jobs, except this process.

    These are the processes with the mark of a job, in any session or process group, and their
    descendants: a child may have another environment. A process with the mark of another job, and
    what it started, belongs to that job.
    """
    return sorted(_members(*marks))


def _members(*marks: str) -> dict[int, str | None]:
    """Return the processes of :func:`marked`; for one without a mark, also its :func:`birth`."""
    wanted = _environment(marks)
    roots, others = [], set()
    for pid, variables in _each("environ"):
        if found := _marks(variables):
            if found.isdisjoint(wanted):
                others.add(pid)
            else:
                roots.append(pid)
    if not roots:
        return {}
    members: dict[int, str | None] = dict.fromkeys(roots)
    children, found_now = _children(), roots
    while found_now:
        below = {pid: since for one in found_now for pid, since in children.get(one, ())}
        found_now = [pid for pid in below if pid not in members and pid not in others]
        members |= {pid: below[pid] for pid in found_now}
    members.pop(os.getpid(), None)
    return members


def by_replica(mark: str) -> dict[str, list[int]]:
    """Return the processes of each replica of a job, with their descendants; the oldest first.

    The supervisor and its guard belong to no replica.
    """
    wanted, name = _environment([mark]), b"CIAO_REPLICA="
    owners: dict[int, str] = {}
    others = set()
    for pid, variables in _each("environ"):
        if found := _marks(variables):
            words = variables.split(b"\0")
            own = next((word for word in words if word.startswith(name)), b"")
            if own and not found.isdisjoint(wanted):
                owners[pid] = own[len(name) :].decode("utf-8", "replace")
            else:
                others.add(pid)
    children = _children() if owners else {}
    found_now = list(owners)
    while found_now:
        below = [(pid, owners[one]) for one in found_now for pid, _ in children.get(one, ())]
        found_now = []
        for pid, replica in below:
            if pid not in owners and pid not in others:
                owners[pid] = replica
                found_now.append(pid)
    result: dict[str, list[int]] = {}
    for pid in sorted(owners):
        result.setdefault(owners[pid], []).append(pid)
    return result


def _environment(marks: Collection[str]) -> set[bytes]:
    return {f"{MARK}={mark}".encode() for mark in marks}


def _marks(variables: bytes) -> set[bytes]:
    prefix = f"{MARK}=".encode()
    if prefix not in variables:  # Almost always, and much faster than to split them.
        return set()
    return {one for one in variables.split(b"\0") if one.startswith(prefix)}


def _children() -> dict[int, list[tuple[int, str]]]:
    """Return the living children of each process, each with its :func:`birth`.

    A child that only waits to be reaped is dead.
    """
    children: dict[int, list[tuple[int, str]]] = {}
    for pid, stat in _each("stat"):
        fields = _fields(stat)
        if fields[0] not in _DEAD:
            children.setdefault(int(fields[1]), []).append((pid, fields[19].decode()))
    return children


def name(folder: Path) -> bool:
    """Return whether a living process has a path inside a folder in its command line."""
    wanted = os.fsencode(f"{folder}{os.sep}")
    return any(wanted in words for _, words in _each("cmdline"))


def is_of_job(pid: int, since: str | None, mark: str) -> bool:
    """Return whether a process is alive, has this :func:`birth`, and has the mark of a job.

    Both are needed before a record's process is ended: the record may be older than a restart of
    the machine, after which the same number and start time belong to an innocent process.
    """
    return alive(pid, since) and _has_mark(pid, _environment([mark]))


def kill(pid: int, since: str | None, mark: str, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to a process of a job, if it still :func:`is_of_job`."""
    _send(pid, number, lambda: is_of_job(pid, since, mark))


def kill_marked(
    mark: str,
    *others: str,
    number: signal.Signals = signal.SIGKILL,
    spare: Collection[int] = (),
) -> bool:
    """Send a signal to the processes of :func:`marked`; return whether there was one.

    Args:
        mark: The mark of a job.
        others: Further marks.
        number: The signal.
        spare: Processes that get no signal.
    """
    wanted = _environment((mark, *others))
    found = {pid: since for pid, since in _members(mark, *others).items() if pid not in spare}
    for pid, since in found.items():
        _send(pid, number, functools.partial(_is_member, pid, since, wanted))
    return bool(found)


def _is_member(pid: int, since: str | None, wanted: set[bytes]) -> bool:
    return _has_mark(pid, wanted) if since is None else alive(pid, since)


def _has_mark(pid: int, wanted: set[bytes]) -> bool:
    """Return whether a process has one of some marks.

    While it executes another program it has no environment for a moment (execve(2)).
    """
    for _ in range(_LOOKS):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        if environment or birth(pid) is None:
            return not wanted.isdisjoint(environment.split(b"\0"))
        time.sleep(0.001)
    return False


def _send(pid: int, number: signal.Signals, is_meant: Callable[[], bool]) -> None:
    """Send a signal to a process, which may be gone already, if it is the one that is meant.

    The descriptor is opened before the check: if the process ends after the check and its number is
    reused, the signal goes to the ended process, and so to none (pidfd_open(2), Linux 5.3). Pythons
    that were built for an older Linux, such as some of conda and uv, lack the two functions.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        try:
            send, process = signal.pidfd_send_signal, os.pidfd_open(pid)
        except ProcessLookupError:
            return
        except (AttributeError, OSError):  # OSError: an older Linux, or a sandbox that forbids it
            if pid > 0 and is_meant():
                os.kill(pid, number)
            return
        try:
            if is_meant():
                send(process, number)
        finally:
            os.close(process)


def sweep(*marks: str, spare: Collection[int] = ()) -> None:
    """Kill all processes of jobs except this process and ``spare``; return when none is left.

    The search is repeated until it finds nothing twice in a row: a process may start another just
    before it dies, and has no environment for a moment while it executes another program.
    """
    until = time.monotonic() + _PATIENCE
    clean = 0
    while clean < 2 and time.monotonic() < until:
        clean = 0 if marks and kill_marked(*marks, spare=spare) else clean + 1
        time.sleep(0.01)


def sweep_replica(mark: str, replica: str) -> None:
    """Kill what a replica that has ended left running; return when none is left.

    Its processes have the replica's name in their environment (``CIAO_REPLICA``). So may this
    process and its parent, if the job was started in a replica of another job.
    """
    job, name = _environment([mark]), {f"CIAO_REPLICA={replica}".encode()}
    spare = (os.getpid(), os.getppid())

    def is_meant(pid: int) -> bool:
        return _has_mark(pid, job) and _has_mark(pid, name)

    until = time.monotonic() + _PATIENCE
    left = True
    while left and time.monotonic() < until:
        left = False
        for pid, variables in _each("environ"):
            found = (job | name) <= set(variables.split(b"\0")) and pid not in spare
            if found and birth(pid) is not None:
                left = True
                _send(pid, signal.SIGKILL, functools.partial(is_meant, pid))
        if left:
            time.sleep(0.01)


def _each(file: str) -> Iterator[tuple[int, bytes]]:
    """Yield the id of each process whose file this user may read, and the file's content."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                content = (entry / file).read_bytes()
                yield int(entry.name), content
