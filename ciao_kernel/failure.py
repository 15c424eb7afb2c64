"""Say why a job failed: which replica, how it ended, its traceback, and what may mend it.

The session calls :func:`explain` once a job has failed, with the ends of the replicas' logs.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from pathlib import Path

from ciao_kernel.errors import JobFailed
from ciao_kernel.model import Job, Replica, ReplicaStatus, State, Status
from ciao_kernel.workspace import CELL

TAIL = 256 * 1024
"""Bytes at the end of a log in which a traceback is looked for."""

_START = re.compile(r"Traceback \(most recent call last\):\s*$")
_RANK = re.compile(r"^\[rank\d+\]: ?")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
# torchrun's own traceback, which only says that a child of it failed.
_WRAPPER = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
# What a replica says when another one went away: the cause is to be found there.
_CONSEQUENCE = re.compile(
    r"Connection (?:reset|closed|refused)|Broken pipe|UnavailableError|AbortedError"
    r"|CancelledError|DistNetworkError|DistBackendError|Socket closed|StoreTimeout"
)
_LINES_WITHOUT_TRACEBACK = 10


def explain(
    job: Job, status: Status, tails: Mapping[Replica, bytes], folder: Path
) -> JobFailed:
    """Return the error that the cell ends with.

    Args:
        job: The job that failed.
        status: Its last status.
        tails: The end of each replica's log.
        folder: Where the user works, to find files that the job missed.
    """
    ended = {one.replica: one for one in status.replicas}
    texts = {replica: _lines(data) for replica, data in tails.items()}
    found = {replica: trace for replica, lines in texts.items() if (trace := _traceback(lines))}
    replica = _culprit(status, found)
    if replica is None:
        return JobFailed(status.message or "the job failed.", job=job.name)
    trace = found.get(replica, ())
    how = _how(ended[replica])
    last = trace[-1] if trace else ""
    message = status.message or f"{replica} {how}" + (f": {last}" if last else ".")
    shown = [_cell_line(line, job) for line in trace]
    if not trace:
        shown = [f"[{replica}] {line}" for line in texts.get(replica, [])[-_LINES_WITHOUT_TRACEBACK:]]
    same = [other for other in found if other != replica and _same(found[other], trace)]
    if same:
        names = ", ".join(map(str, same))
        shown.append(f"The same error came from {names} ({len(same) + 1} replicas in all).")
    text = "\n".join(texts.get(replica, [])[-200:])
    hint = _hint(text, ended[replica], folder, job)
    return JobFailed(message, hint, job=job.name, traceback=tuple(shown))


def _lines(data: bytes) -> list[str]:
    text = _ESCAPE.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n")
    return [_RANK.sub("", line) for line in text.split("\n")]


def _traceback(lines: list[str]) -> tuple[str, ...]:
    """The last traceback in a log, with those that it is chained to."""
    starts = [number for number, line in enumerate(lines) if _START.search(line)]
    blocks = [(start, _end(lines, start)) for start in starts]
    blocks = [(s, e) for s, e in blocks if e and not lines[e - 1].startswith(_WRAPPER)]
    if not blocks:
        return ()
    start, end = blocks[-1]
    for earlier, earlier_end in reversed(blocks[:-1]):
        between = [line.strip() for line in lines[earlier_end:start] if line.strip()]
        if len(between) != 1 or between[0] not in _CHAINED:
            break
        start = earlier
    margin = len(lines[start]) - len(lines[start].lstrip())
    return tuple(line[margin:] if line[:margin].isspace() else line for line in lines[start:end])


def _end(lines: list[str], start: int) -> int:
    """One past the line that names the exception; 0 where the traceback is cut off."""
    margin = lines[start][: len(lines[start]) - len(lines[start].lstrip())]
    for number in range(start + 1, len(lines)):
        line = lines[number]
        if line.startswith(margin) and line[len(margin) :][:1] not in (" ", "\t", ""):
            return number + 1
    return 0


def _culprit(status: Status, found: Mapping[Replica, tuple[str, ...]]) -> Replica | None:
    """The replica to blame: the first that failed, unless it fell because of another."""
    failed = [one.replica for one in status.replicas if one.state is State.FAILED]
    first = status.decided_by or (failed[0] if failed else None)
    if first is None or (first in found and not _CONSEQUENCE.search(found[first][-1])):
        return first
    for other in [*failed, *found]:
        if other in found and not _CONSEQUENCE.search(found[other][-1]):
            return other
    return first


def _how(one: ReplicaStatus) -> str:
    if one.exit_code is None or one.exit_code == 0:
        return "failed"
    if one.exit_code < 0:
        return f"was killed by {exit_text(one.exit_code)}"
    return f"ended with {exit_text(one.exit_code)}"


def exit_text(code: int) -> str:
    """Name an exit code as Python counts it: negative is a signal's number."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _cell_line(line: str, job: Job) -> str:
    """Name the cell, not the file that it became: ``Cell, line 14, in train``."""
    place = f'File "{job.program}"'
    if place not in line:
        return line
    name = Path(job.program).name
    return line.replace(place, "Cell" if name == CELL else f'File "{name}"')


def _same(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    def normal(lines: tuple[str, ...]) -> list[str]:
        return [re.sub(r"0x[0-9a-f]+|\d+\.\d+\.\d+\.\d+:\d+", "…", line) for line in lines]

    return bool(one) and normal(one) == normal(other)


# ----------------------------------------------------------------------------------- hints


def _hint(text: str, one: ReplicaStatus, folder: Path, job: Job) -> str:
    for look in (_missing_file, _missing_module, _port, _disk, _memory):
        if hint := look(text, one, folder):
            return hint
    return f"The whole log is in {one.log}." if one.log else ""


def _missing_file(text: str, one: ReplicaStatus, folder: Path) -> str:
    for name in reversed(re.findall(r"No such file or directory:? '([^'\n]+)'", text)):
        path = Path(name)
        if not path.is_absolute() and ".." not in path.parts and (folder / path).exists():
            return f"{name} lies beside the notebook; a line %files={name} brings it to the job."
    return ""


def _missing_module(text: str, one: ReplicaStatus, folder: Path) -> str:
    names = re.findall(r"ModuleNotFoundError: No module named '([^'\n]+)'", text)
    if not names:
        return ""
    top = names[-1].split(".")[0]
    for path in (f"{top}.py", top):
        if (folder / path).exists():
            return f"{path} lies beside the notebook; a line %files={path} brings it to the job."
    return f"Install it (in a plain cell: %pip install {top}), or name another %python."


def _port(text: str, one: ReplicaStatus, folder: Path) -> str:
    if re.search(r"Address already in use|EADDRINUSE|errno: 98", text):
        return "Another program took a port of this job. Run the cell again: it gets new ports."
    return ""


def _disk(text: str, one: ReplicaStatus, folder: Path) -> str:
    if "No space left on device" in text:
        return "The disk is full. `ciao delete --finished` removes old jobs and their files."
    return ""


def _memory(text: str, one: ReplicaStatus, folder: Path) -> str:
    if one.exit_code == -9:
        return "SIGKILL mostly means that the machine ran out of memory: try fewer replicas."
    return ""


