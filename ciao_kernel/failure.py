"""Say why a job failed: which replica, how it ended, its traceback, and what may mend it.

The session calls :func:`explain` once a job has failed, with the ends of the replicas' logs.
What makes a hint is at the end of the file; reading tracebacks is in the middle.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ciao_kernel.errors import JobFailed
from ciao_kernel.magics.kinds import quote
from ciao_kernel.model import Job, Replica, ReplicaStatus, State, Status, exit_text
from ciao_kernel.workspace import CELL, entry_name

_LINES_WITHOUT_TRACEBACK = 10
_MOST_LINES = 100
_WIDEST = 1000
# What a replica says when another one went away: the cause is to be found there.
_CONSEQUENCE = re.compile(
    r"(?i:Connection ?(?:reset|closed|refused|aborted)|Broken ?pipe|Socket closed)"
    r"|UnavailableError|AbortedError|CancelledError|DistNetworkError|DistBackendError"
    r"|StoreTimeout|KeyboardInterrupt|SignalException"
)


def explain(job: Job, status: Status, tails: Mapping[Replica, bytes], folder: Path) -> JobFailed:
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
    if replica is None or replica not in ended:
        return JobFailed(status.message or "the job failed.", job=job.name)
    trace, lines = found.get(replica), texts.get(replica, [])
    message = status.message or f"{replica} {_how(ended[replica])}" + (
        f": {_short(trace.error)}" if trace else "."
    )
    if trace:
        shown = [_short(_own_file(line, job)) for line in _middle_out(trace.lines)]
    else:
        said = [line for line in lines if line.strip()][-_LINES_WITHOUT_TRACEBACK:]
        shown = [f"[{replica}] {_short(line)}" for line in said]
    same = [other for other in found if other != replica and _same(found[other], trace)]
    if same:
        names = ", ".join(map(str, same))
        shown.append(f"The same error came from {names} ({len(same) + 1} replicas in all).")
    hint = _hint("\n".join(lines[-200:]), ended[replica], folder, job)
    return JobFailed(message, hint, job=job.name, traceback=tuple(shown))


def _culprit(status: Status, found: Mapping[Replica, _Trace]) -> Replica | None:
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


# ------------------------------------------------------------------------------ tracebacks

# PyTorch writes a rank before each line of a traceback, though not before empty ones.
_RANK = re.compile(r"^\[rank\d+\]: ?")
_START = re.compile(
    r"^(?P<margin>(?:\[rank\d+\]: ?)?[\s|]*)Traceback \(most recent call last\):\s*$"
)
_GROUP_START = re.compile(
    r"^(?:\[rank\d+\]: ?)?\s*\+ Exception Group Traceback \(most recent call last\):\s*$"
)
_GROUP_LINE = re.compile(r"^\s*[|+]")
_GROUP_ERROR = re.compile(r"^\s*\| (?P<error>[\w.]+: .*)$")
# The start of a traceback anywhere in a line. It begins with a fixed character, so that a search
# does not read a long line again and again.
_HEAD = re.compile(
    r"(?:\[rank\d+\]: *)?(?:\+ Exception Group )?Traceback \(most recent call last\):\s*$"
)
# Where a traceback ends: ``ValueError: text``, ``my.module.Error``. Other lines at the margin
# come from threads and processes that write in between.
_ERROR = re.compile(r"^[A-Za-z_][\w.]*(?::\s.*|:)?$")
_NOT_AN_ERROR = re.compile(r"^(?:DEBUG|INFO|WARNING|WARN|NOTE|I|W)\b")
_MOST_OF_A_MESSAGE = 20
# What is no part of the message that an error ends with, although it comes below it.
_NOT_THE_MESSAGE = re.compile(
    r"\[?(?:[DIWEF]\d{4} |\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d)"  # loggers: E1121 14:02:28
    r"|\[?(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\b"
    r"|\[[A-Za-z][\w-]*\d\][: ]"  # another process: [rank1]:, [worker-1]
    r"|={4,}|\*{4,}|.*torch[./]distributed[./]elastic"  # torchrun's report
    r"|\S*\.py:\d+: \w*Warning\b"
    r"|\s*\d+/\d+ |\s*\d+%\||(?i:epoch|step)\b\W*\d"  # progress
    r"|Exception (?:ignored |in thread )|Error in (?:atexit|sys)|Fatal Python error"  # the end
    r"|terminate called |(?:Aborted|Killed|Terminated|Segmentation fault)\b"
)
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
# torchrun's own traceback, which only says that a child of it failed.
_WRAPPER = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"


@dataclass(frozen=True, slots=True)
class _Trace:
    lines: tuple[str, ...]
    error: str
    """The line that names the exception."""

    @property
    def consequence(self) -> bool:
        return _CONSEQUENCE.search(self.error) is not None


@dataclass(frozen=True, slots=True)
class _Block:
    """One traceback in a log: lines from start to end, without what it is chained to."""

    start: int
    end: int
    error: str
    lines: tuple[str, ...]


def _lines(data: bytes) -> list[str]:
    """A log as a terminal would show it, without colours."""
    text = _ESCAPE.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n")
    lines = (line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))
    return [part for line in lines for part in _apart(line)]


def _apart(line: str) -> list[str]:
    """Start a traceback on a line of its own: a progress bar or a prompt leaves its line open."""
    head = _HEAD.search(line)
    before = line[: head.start()] if head else ""
    # Within a message PyTorch says "Original Traceback", which is no traceback by itself.
    if not _RANK.sub("", before).strip(" \t|") or before.endswith("Original "):
        return [line]
    return [before, line[len(before) :]]


def _traceback(lines: list[str]) -> _Trace | None:
    """The last traceback in a log, with those that it is chained to."""
    blocks = [block for block in _blocks(lines) if not block.error.startswith(_WRAPPER)]
    if not blocks:
        return None
    last = blocks.pop()
    shown, start = list(last.lines), last.start
    while blocks:
        earlier = blocks.pop()
        said = (_RANK.sub("", line).strip() for line in lines[earlier.end : start])
        between = [line for line in said if line]
        if len(between) != 1 or between[0] not in _CHAINED:
            break
        shown[:0] = [*earlier.lines, "", between[0], ""]
        start = earlier.start
    return _Trace(tuple(shown), last.error)


def _blocks(lines: list[str]) -> list[_Block]:
    blocks = []
    number = 0
    while number < len(lines):
        if match := _START.match(lines[number]):
            block = _plain(lines, number, match["margin"])
        elif _GROUP_START.match(lines[number]):
            block = _group(lines, number)
        else:
            block = None
        if block:
            blocks.append(block)
        number = block.end if block else number + 1
    return blocks


def _plain(lines: list[str], start: int, margin: str) -> _Block | None:
    """A traceback from its first line to its error; None where it is cut off."""
    kept = [lines[start].removeprefix(margin)]
    for number in range(start + 1, len(lines)):
        if _START.match(lines[number]):
            return None
        line = _behind(margin, lines[number])
        if line is None:
            continue
        if line[:1].isspace():
            kept.append(line)
        elif _ERROR.match(line) and not _NOT_AN_ERROR.match(line):
            message = _message(lines, number + 1, margin)
            end = number + 1 + len(message)
            return _Block(start, end, line, (*kept, line, *message))
    return None


def _behind(margin: str, line: str) -> str | None:
    """What a line says behind the margin; None where another rank or its launcher wrote it."""
    if _RANK.match(margin) and line.strip() and not line.startswith(margin):
        return None
    return line.removeprefix(margin)


def _message(lines: list[str], start: int, margin: str) -> list[str]:
    """The lines of an error's message below its first one.

    Nothing marks where it ends. So it goes on to what cannot be a part of it, or for some lines;
    indented ones do not count, for TensorFlow puts the stack of a graph into its messages.
    """
    kept: list[str] = []
    room = _MOST_OF_A_MESSAGE
    for number in range(start, len(lines)):
        line = _behind(margin, lines[number])
        if line is None or _NOT_THE_MESSAGE.match(line) or line.strip() in _CHAINED:
            break
        if _START.match(lines[number]) or _GROUP_START.match(lines[number]):
            break
        if line[:1].strip():
            room -= 1
            if room < 0:
                break
        kept.append(line)
    while kept and not kept[-1].strip():
        kept.pop()
    return kept


def _group(lines: list[str], start: int) -> _Block | None:
    kept = [_RANK.sub("", lines[start])]
    for number in range(start + 1, len(lines)):
        said = _RANK.sub("", lines[number])
        if not _GROUP_LINE.match(said) or _GROUP_START.match(said):
            break
        kept.append(said)
    errors = (match["error"] for line in kept if (match := _GROUP_ERROR.match(line)))
    error = next(errors, None)
    return _Block(start, start + len(kept), error, tuple(kept)) if error else None


def _same(one: _Trace, other: _Trace | None) -> bool:
    def normal(lines: tuple[str, ...]) -> list[str]:
        return [re.sub(r"0x[0-9a-f]+|\d+\.\d+\.\d+\.\d+:\d+", "…", line) for line in lines]

    return other is not None and normal(one.lines) == normal(other.lines)


# ----------------------------------------------------------------------------------- hints

_MISSING = re.compile(
    r"No such file or directory:? (?:'([^'\n]+)'|\"([^\"\n]+)\")|(?<![^\s;])([^\s;]+); No such file"
)


def _hint(text: str, one: ReplicaStatus, folder: Path, job: Job) -> str:
    hint = (
        _missing_file(text, folder, job)
        or _missing_module(text, folder)
        or _port(text)
        or _disk(text, job)
        or _memory(text, one)
    )
    return hint or (f"The whole log is in {one.log}." if one.log else "")


def _missing_file(text: str, folder: Path, job: Job) -> str:
    for groups in reversed(_MISSING.findall(text)):
        name = "".join(groups).removeprefix(f"{job.workdir}/")
        if _beside(name, folder):
            return _send(name)
    return ""


def _missing_module(text: str, folder: Path) -> str:
    names = re.findall(r"ModuleNotFoundError: No module named '([^'\n]+)'", text)
    if not names:
        return ""
    top = names[-1].split(".")[0]
    for path in (f"{top}.py", top):
        if _beside(path, folder):
            return _send(path)
    return (
        "Install the package that provides it for the replicas' Python (pip install "
        f"{top}, if that is its name), or name another Python with %python."
    )


def _beside(name: str, folder: Path) -> bool:
    path = Path(name)
    with contextlib.suppress(OSError, ValueError):
        return not path.is_absolute() and ".." not in path.parts and (folder / path).exists()
    return False


def _send(name: str) -> str:
    return f"{name} is next to your code; add a line %files={quote(name)} to send it to the job."


def _port(text: str) -> str:
    if re.search(r"Address already in use|EADDRINUSE|errno: 98", text):
        return "Another program took one of this job's ports. Run it again: it will get new ports."
    return ""


def _disk(text: str, job: Job) -> str:
    full = "No space left on device" in text or "Disk quota exceeded" in text
    with contextlib.suppress(OSError):
        # On a full disk there is no room for the traceback either.
        full = full or shutil.disk_usage(job.files).free < 1024 * 1024
    if full:
        return "The disk is full. `%ciao delete --finished` removes old jobs and their files."
    return ""


def _memory(text: str, one: ReplicaStatus) -> str:
    if "CUDA out of memory" in text:
        return "The GPU ran out of memory: a smaller batch may fit."
    if one.exit_code == -signal.SIGKILL or "MemoryError" in text:
        return "The machine may have run out of memory: try fewer replicas, or smaller batches."
    return ""
