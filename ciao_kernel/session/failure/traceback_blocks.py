"""Finds each traceback in a replica's log: the lines from its first one to the error's message.

A log mixes the output of Python, TensorFlow, PyTorch, torchrun and the user's program, and
nothing marks the end of a traceback: patterns decide which lines belong to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# PyTorch writes a rank before each line of an uncaught error's traceback, except empty lines, and
# ciao's call of torchrun the number of the process before each line (frameworks/torchrun.py).
_NUMBER = r"\[\d{1,3}\] "
_RANK = r"\[rank\d+\]: ?"
RANK = re.compile(rf"^(?:{_NUMBER}(?:{_RANK})?|{_RANK})")
_MARGIN = rf"(?:{_NUMBER})?(?:{_RANK})?"
_START = re.compile(rf"^(?P<margin>{_MARGIN}[\s|]*)Traceback \(most recent call last\):\s*$")
_GROUP_START = re.compile(
    rf"^{_MARGIN}\s*\+ Exception Group Traceback \(most recent call last\):\s*$"
)
_GROUP_LINE = re.compile(r"^\s*[|+]")
# ``my.module.Error``, ``main.<locals>.Error``: a class may be local to a function.
_CLASS = r"[A-Za-z_][\w.]*(?:<locals>[\w.]*)*"
_GROUP_ERROR = re.compile(rf"^\s*\| (?P<error>{_CLASS}: .*)$")
# The start of a traceback anywhere in a line. Each match begins with a fixed character, so that a
# search does not read a long line again and again.
_HEAD = re.compile(
    rf"(?:{_NUMBER})?(?:{_RANK} *)?"
    r"(?:\+ Exception Group )?Traceback \(most recent call last\):\s*$"
)
# The second line of a traceback of one of several processes.
_SECOND = re.compile(rf"(?P<number>{_NUMBER})(?P<rank>(?:{_RANK})?)[ \t|]+File \"")
# The end of a traceback: ``ValueError: text``, ``my.module.Error``. Other lines at the margin
# come from threads and processes that write at the same time.
_ERROR = re.compile(rf"^{_CLASS}(?::\s.*|:)?$")
_NOT_AN_ERROR = re.compile(r"^(?:DEBUG|INFO|WARNING|WARN|NOTE|I|W)\b")
_MOST_OF_A_MESSAGE = 20
# Lines below an error that are not part of its message.
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
CAUSED = "The above exception was the direct cause of the following exception:"
CHAINED = ("During handling of the above exception, another exception occurred:", CAUSED)


@dataclass(frozen=True, slots=True)
class Block:
    """One traceback in a log: lines from start to end, without chained tracebacks."""

    start: int
    end: int
    error: str
    lines: tuple[str, ...]
    said: tuple[str, ...]
    numbers: tuple[int, ...]


def apart(line: str, below: str) -> list[str]:
    """Move a traceback to its own line: a progress bar or a prompt leaves its line open.

    Args:
        line: The line.
        below: The next line.
    """
    head = _HEAD.search(line)
    if head is None:
        return [line]
    before, own = line[: head.start()], line[head.start() :]
    # "Original Traceback" is part of a message of PyTorch, and not a separate traceback.
    if before.endswith("Original ") or (before and not RANK.sub("", before).strip(" \t|")):
        return [line]
    own = _with_number(own, below)
    return [before, own] if before else [own]


def _with_number(head: str, below: str) -> str:
    """Return the first line of a traceback with the number of its process, as the next line has it.

    Behind an open line it has none, and without it the next lines are those of another process.
    """
    second = _SECOND.match(below)
    rank = RANK.match(head)
    if second is None or second["rank"] != (rank[0] if rank else ""):
        return head
    return second["number"] + head


def blocks(lines: list[str]) -> list[Block]:
    """Return the complete tracebacks in the lines of a log, in their order.

    Args:
        lines: The lines, as :func:`apart` leaves them.
    """
    found = []
    number = 0
    while number < len(lines):
        if match := _START.match(lines[number]):
            block = _plain(lines, number, match["margin"])
        elif _GROUP_START.match(lines[number]):
            block = _group(lines, number)
        else:
            block = None
        if block:
            found.append(block)
        number = block.end if block else number + 1
    return found


def _plain(lines: list[str], start: int, margin: str) -> Block | None:
    """Return a traceback from its first line to its error, or None if it is cut off."""
    kept, numbers = [lines[start].removeprefix(margin)], [start]
    for number in range(start + 1, len(lines)):
        if _START.match(lines[number]):
            return None
        line = _behind(margin, lines[number])
        if line is None:
            continue
        if line[:1].isspace():
            kept.append(line)
            numbers.append(number)
        elif _ERROR.match(line) and not _NOT_AN_ERROR.match(line):
            message = _message(lines, number + 1, margin)
            end = number + 1 + len(message)
            shown, places = (*kept, line, *message), (*numbers, *range(number, end))
            return Block(start, end, line, shown, (line, *message), places)
    return None


def _behind(margin: str, line: str) -> str | None:
    """Return a line without the margin, or None if another rank or its launcher wrote it."""
    if RANK.match(margin) and line.strip() and not line.startswith(margin):
        return None
    return line.removeprefix(margin)


def _message(lines: list[str], start: int, margin: str) -> list[str]:
    """Return the lines of an error's message below its first line.

    Nothing marks the end of a message. It is cut at the first line that cannot belong to it, or
    after some lines; indented lines do not count, because TensorFlow puts the stack of a graph
    into its messages.
    """
    kept: list[str] = []
    room = _MOST_OF_A_MESSAGE
    for number in range(start, len(lines)):
        line = _behind(margin, lines[number])
        if line is None or _NOT_THE_MESSAGE.match(line) or line.strip() in CHAINED:
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


def _group(lines: list[str], start: int) -> Block | None:
    kept = [RANK.sub("", lines[start])]
    for number in range(start + 1, len(lines)):
        said = RANK.sub("", lines[number])
        if not _GROUP_LINE.match(said) or _GROUP_START.match(said):
            break
        kept.append(said)
    errors = (match["error"] for line in kept if (match := _GROUP_ERROR.match(line)))
    error = next(errors, None)
    whole, numbers = tuple(kept), tuple(range(start, start + len(kept)))
    return Block(start, start + len(kept), error, whole, whole, numbers) if error else None
