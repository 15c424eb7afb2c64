"""Builds the error of a failed job: which replica failed, how, and its last output."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from ciao_kernel.delivery.input.imports import CELL, TEXT, entry_name
from ciao_kernel.errors import JobFailed
from ciao_kernel.frameworks import torchrun_report
from ciao_kernel.model import Job, Replica, ReplicaStatus, State, Status, exit_text
from ciao_kernel.session.failure import hints, tracebacks
from ciao_kernel.session.failure.evidence import Failure
from ciao_kernel.session.failure.tracebacks import Trace
from ciao_kernel.visible_text import counted

# Maximum number of lines after the traceback that a replica ended with. Python exits with code 1
# after a traceback; another code is the program's own choice, and a signal from ciao stopped a
# program that still ran.
_BEHIND = 50
_MAX_LINES_AFTER_OTHER_EXIT = 10
_MOST_LINES = 100
_WIDEST = 1000
_NOT_STARTED = ("StartError: ", "ContainerCannotRun: ")


def explain(failure: Failure) -> JobFailed:
    """Return the error that the cell of a failed job ends with."""
    job, status, tails = failure.job, failure.status, failure.tails
    ended = {one.replica: one for one in status.replicas}
    texts = {replica: tracebacks.log_lines(data) for replica, data in tails.items()}
    found = {
        replica: trace
        for replica, lines in texts.items()
        if replica in ended and (trace := _trace(ended[replica], lines))
    }
    replica = _failing_replica(status, found)
    if replica not in ended:
        message = status.message or "the job failed."
        return JobFailed(message, hints.refused_pods(message), job=job.name)
    trace, lines = found.get(replica), texts.get(replica, [])
    own, rank = _without_torchrun(lines)
    why = f": {_short(trace.error)}" if trace else f": {rank}." if rank else "."
    how = _how(ended[replica], job)
    if not trace and rank.endswith(f" {how}"):  # torchrun has ended as its process did
        why = f" ({rank.removesuffix(how).strip()})."
    message = status.message or f"{replica} {how}{_after(ended[replica])}{why}"
    if trace:
        shown = [_short(_show_user_file(line, job)) for line in _cut_middle(trace.lines)]
    else:
        shown = [f"[{replica}] {_short(line)}" for line in hints.last(own)]
    same = [other for other in found if other != replica and found[other].same_as(trace)]
    repeats = {}
    # Without log files, what the error cuts and what differs in an address would be lost.
    if trace and (job.logs_kept or _is_whole(shown, trace, job)):
        equal = [one for one in same if job.logs_kept or found[one].lines == trace.lines]
        repeats = {one: tracebacks.written(tails[one], found[one]) for one in (replica, *equal)}
    others = ""
    if same:
        names = ", ".join(map(str, same))
        others = f"The same error came from {names} ({len(same) + 1} replicas in all)."
        shown.append(others)
    hint = hints.hint(failure, lines, trace, ended[replica], message)
    error = JobFailed(message, hint, job=job.name, traceback=tuple(shown), repeats=repeats)
    error.others = others
    error.exceptions = {
        one: its.error
        for one, its in found.items()  # others have caught theirs, or may go on
        if ended[one].state is State.FAILED or ended[one].exit_code == 1
    }
    return error


def is_consequence(status: Status, tails: Mapping[Replica, bytes]) -> bool:
    """Return whether the replica to blame seems to have failed because of another one.

    Then the last lines of the others are worth waiting for: they may name the cause.

    Args:
        status: A status of the failed job.
        tails: End of each replica's log.
    """
    found = {
        one.replica: trace
        for one in status.replicas
        if (trace := _trace(one, tracebacks.log_lines(tails.get(one.replica, b""))))
    }
    replica = _failing_replica(status, found)
    return replica in found and found[replica].consequence


def _without_torchrun(lines: list[str]) -> tuple[list[str], str]:
    """Return lines without torchrun's reports, and which process they name, or ""."""
    kept, summary = torchrun_report.without_reports([line.encode() for line in lines])
    return [line.decode() for line in kept], summary


def _trace(one: ReplicaStatus, lines: list[str]) -> Trace | None:
    """Return the traceback that a replica ended with, or None if it ended in another way."""
    if one.state is State.SUCCEEDED:
        return None
    by_python = one.exit_code == 1 or (one.exit_code is None and one.state is State.FAILED)
    # torchrun ends as its process did, and its report is between that and the traceback.
    long = by_python or any(torchrun_report.SIGN in line.encode() for line in lines[-_BEHIND:])
    return tracebacks.last_traceback(lines, _BEHIND if long else _MAX_LINES_AFTER_OTHER_EXIT)


def _failing_replica(status: Status, found: Mapping[Replica, Trace]) -> Replica | None:
    """Return the replica to blame: the first that failed, or the cause of that failure."""
    failed = [one.replica for one in status.replicas if one.state is State.FAILED]
    first = status.decided_by or (failed[0] if failed else None)
    if first is None or first not in found or not found[first].consequence:
        return first
    crashed = [one.replica for one in status.replicas if _crashed(one)]
    every = [*failed, *crashed, *found]
    own = next((one for one in every if one in found and not found[one].consequence), None)
    # A process that a library aborts, because it has lost its peers, has no traceback either.
    return own or next((one for one in every if one in crashed and one not in found), first)


def _crashed(one: ReplicaStatus) -> bool:
    """Return whether a signal ended a replica, other than the two that ciao stops it with."""
    ours = (-signal.SIGTERM, -signal.SIGKILL) if one.state is State.STOPPED else ()
    return one.exit_code is not None and one.exit_code < 0 and one.exit_code not in ours


def _how(one: ReplicaStatus, job: Job) -> str:
    if one.reason == "OOMKilled":
        return "was killed because it used too much memory (OOMKilled)"
    if one.reason.startswith(_NOT_STARTED):
        return f"did not start: {one.reason.partition(': ')[2]}"
    if one.reason and (one.exit_code is None or hints.was_taken_away(one, job)):
        return f"failed: {one.reason.rstrip('.')}"
    if one.exit_code is None or one.exit_code == 0:
        return "failed"
    if one.exit_code < 0:
        return f"was killed by {exit_text(one.exit_code)}"
    return f"ended with {exit_text(one.exit_code)}"


def _after(one: ReplicaStatus) -> str:
    return f" after {counted(one.restarts, 'restart')}" if one.restarts else ""


def _show_user_file(line: str, job: Job) -> str:
    """Name the cell, not the file made from it: ``Cell, line 14, in train``."""
    name = job.program.removeprefix(f"{job.workdir}/")
    line = line.replace(
        f'File "{job.program}"', "Cell" if name in (CELL, TEXT) else f'File "{_users_name(name)}"'
    )
    return line.replace(f'File "{job.workdir}/', 'File "')


def _users_name(entry: str) -> str:
    """Return the user's name of a program: ``queue.py`` is delivered as ``ciao_queue.py``."""
    name = entry.removeprefix("ciao_")
    return name if entry_name(Path(name)) == entry else entry


def _is_whole(shown: list[str], trace: Trace, job: Job) -> bool:
    return shown == [_show_user_file(line, job) for line in trace.lines]


def _short(line: str) -> str:
    return line if len(line) <= _WIDEST else f"{line[:_WIDEST]} …"


def _cut_middle(lines: tuple[str, ...]) -> list[str]:
    """Cut out the middle of a very long traceback: both of its ends are informative."""
    left_out = len(lines) - _MOST_LINES
    if left_out <= 0:
        return list(lines)
    half = _MOST_LINES // 2
    return [*lines[:half], f"  … {left_out} lines left out …", *lines[-half:]]
