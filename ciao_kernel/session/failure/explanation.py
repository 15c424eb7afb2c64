"""The error that the cell of a failed job ends with: who failed, how, and what it said."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from ciao_kernel.delivery.imports import CELL, entry_name
from ciao_kernel.errors import JobFailed
from ciao_kernel.model import Job, Replica, ReplicaStatus, State, Status, exit_text
from ciao_kernel.session.failure import hints, tracebacks
from ciao_kernel.session.failure.tracebacks import Trace

# How many lines may be behind the traceback that a replica ended with. Python ends with exit code
# 1 for one; another code is a program's own choice, and a signal of ours met one that still ran.
_BEHIND = 50
_BEHIND_ANOTHER_END = 10
_MOST_LINES = 100
_WIDEST = 1000


def explain(job: Job, status: Status, tails: Mapping[Replica, bytes], folder: Path) -> JobFailed:
    """Return the error that the cell ends with.

    Args:
        job: The job that failed.
        status: Its last status.
        tails: The end of each replica's log.
        folder: Where the user works, to find files that the job missed.
    """
    ended = {one.replica: one for one in status.replicas}
    texts = {replica: tracebacks.log_lines(data) for replica, data in tails.items()}
    found = {
        replica: trace
        for replica, lines in texts.items()
        if replica in ended and (trace := _trace(ended[replica], lines))
    }
    replica = _culprit(status, found)
    if replica is None or replica not in ended:
        return JobFailed(status.message or "the job failed.", job=job.name)
    trace, lines = found.get(replica), texts.get(replica, [])
    message = status.message or f"{replica} {_how(ended[replica])}" + (
        f": {_short(trace.error)}" if trace else "."
    )
    if trace:
        shown = [_short(_own_file(line, job)) for line in _middle_out(trace.lines)]
    else:
        shown = [f"[{replica}] {_short(line)}" for line in hints.last(lines)]
    same = [other for other in found if other != replica and found[other].same_as(trace)]
    if same:
        names = ", ".join(map(str, same))
        shown.append(f"The same error came from {names} ({len(same) + 1} replicas in all).")
    hint = hints.hint(lines, trace, ended[replica], folder, job)
    return JobFailed(message, hint, job=job.name, traceback=tuple(shown))


def _trace(one: ReplicaStatus, lines: list[str]) -> Trace | None:
    """The traceback that a replica ended with; None where it ended by other means."""
    if one.state is State.SUCCEEDED:
        return None
    by_python = one.exit_code == 1 or (one.exit_code is None and one.state is State.FAILED)
    return tracebacks.last_of(lines, _BEHIND if by_python else _BEHIND_ANOTHER_END)


def _culprit(status: Status, found: Mapping[Replica, Trace]) -> Replica | None:
    """The replica to blame: the first that failed, unless it only fell because of another."""
    failed = [one.replica for one in status.replicas if one.state is State.FAILED]
    first = status.decided_by or (failed[0] if failed else None)
    if first is None or first not in found or not found[first].consequence:
        return first
    crashed = [one.replica for one in status.replicas if _crashed(one)]
    for other in [*failed, *crashed, *found]:
        own = found.get(other)
        if (own and not own.consequence) or (own is None and other in crashed):
            return other
    return first


def _crashed(one: ReplicaStatus) -> bool:
    """Whether a signal ended it that was not ours, which stops replicas by two of them."""
    ours = (-signal.SIGTERM, -signal.SIGKILL) if one.state is State.STOPPED else ()
    return one.exit_code is not None and one.exit_code < 0 and one.exit_code not in ours


def _how(one: ReplicaStatus) -> str:
    if one.reason == "OOMKilled":
        return "was killed because it used more memory than it may (OOMKilled)"
    if one.exit_code is None and one.reason:
        return f"failed: {one.reason}"
    if one.exit_code is None or one.exit_code == 0:
        return "failed"
    if one.exit_code < 0:
        return f"was killed by {exit_text(one.exit_code)}"
    return f"ended with {exit_text(one.exit_code)}"


def _own_file(line: str, job: Job) -> str:
    """Name the cell, not the file that it became: ``Cell, line 14, in train``."""
    name = Path(job.program).name
    line = line.replace(
        f'File "{job.program}"', "Cell" if name == CELL else f'File "{_users_name(name)}"'
    )
    return line.replace(f'File "{job.workdir}/', 'File "')


def _users_name(entry: str) -> str:
    """The file that was run: a ``queue.py`` is delivered as ``ciao_queue.py``."""
    name = entry.removeprefix("ciao_")
    return name if entry_name(Path(name)) == entry else entry


def _short(line: str) -> str:
    return line if len(line) <= _WIDEST else f"{line[:_WIDEST]} …"


def _middle_out(lines: tuple[str, ...]) -> list[str]:
    """Cut a very long traceback in its middle: both of its ends say something."""
    left_out = len(lines) - _MOST_LINES
    if left_out <= 0:
        return list(lines)
    half = _MOST_LINES // 2
    return [*lines[:half], f"  … {left_out} lines left out …", *lines[-half:]]
