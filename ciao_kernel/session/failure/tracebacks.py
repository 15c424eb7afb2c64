"""Finds tracebacks at the end of a replica's log.

A log mixes the output of Python, TensorFlow, PyTorch, torchrun and the user's program, and
nothing marks the end of a traceback: patterns decide which lines belong to it. A traceback that
ended the program differs from a caught and logged one only by the few lines after it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Errors that the end of another replica causes: the original error is in that replica.
_CONSEQUENCE = re.compile(
    r"(?i:Connection ?(?:reset|closed|refused|aborted)|Broken ?pipe|Socket closed)"
    r"|UnavailableError|AbortedError|CancelledError|DistNetworkError|DistBackendError"
    r"|StoreTimeout|KeyboardInterrupt|SignalException"
)

# PyTorch writes a rank before each line of an uncaught error's traceback, except empty lines, and
# ciao's call of torchrun the number of the process before each line (frameworks/torchrun.py).
_RANK = re.compile(r"^(?:\[\d{1,3}\] (?:\[rank\d+\]: ?)?|\[rank\d+\]: ?)")
_MARGIN = r"(?:\[\d{1,3}\] )?(?:\[rank\d+\]: ?)?"
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
    r"(?:\[\d{1,3}\] )?(?:\[rank\d+\]: *)?"
    r"(?:\+ Exception Group )?Traceback \(most recent call last\):\s*$"
)
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
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]*[0-~])?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
_CAUSED = "The above exception was the direct cause of the following exception:"
_CHAINED = ("During handling of the above exception, another exception occurred:", _CAUSED)
# torchrun's own traceback, which only reports that a child process failed.
_WRAPPER = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
# `accelerate launch` reports the same, also of a program that wrote no traceback.
_LAUNCHER = "subprocess.CalledProcessError"
_LAUNCHER_FILE = re.compile(r'\s+File "[^"]*accelerate[/\\]commands[/\\]launch\.py"')
# Line before a traceback that does not end the program.
_IGNORED = re.compile(r"Exception ignored |Error in (?:atexit|sys\.excepthook)")
# Output of libraries while a program ends, of any length.
_TEARDOWN = re.compile(
    r"\[?[DIWEF]\d{4} [^\]]*(?:\.(?:cc|cpp|h):\d+\]|torch[./]distributed)"
    r"|\d{4}-\d\d-\d\d [\d:.]+: [DIWEF] (?:tensorflow|external)/"
    r"|[^\s:]+:\d+:\d+ \[\d+\] NCCL |frame #\d+: |wandb: |(?:Current t|T)hread 0x"
)
# An indented line, usually part of a stack, counts as a quarter of another line.
_COST, _COST_INDENTED = 4, 1


@dataclass(frozen=True, slots=True)
class Trace:
    """A traceback, with the tracebacks that it is chained to."""

    lines: tuple[str, ...]
    error: str
    """The line that names the exception."""
    said: tuple[str, ...]
    """The error and its message, after those of the errors that caused it."""
    numbers: tuple[int, ...]
    """Indices of all of its lines in the log. Other processes may have written between them."""
    rank: str
    """Process of the replica that wrote it, as PyTorch marks it; empty: not known."""

    @property
    def start(self) -> int:
        """Index of its first line in the log."""
        return self.numbers[0]

    @property
    def consequence(self) -> bool:
        """Return whether the error is a typical effect of another replica's end."""
        return _CONSEQUENCE.search(self.error) is not None

    def same_as(self, other: Trace | None) -> bool:
        """Return whether two tracebacks are equal except for addresses."""
        return other is not None and _without_addresses(self) == _without_addresses(other)


@dataclass(frozen=True, slots=True)
class _Block:
    """One traceback in a log: lines from start to end, without chained tracebacks."""

    start: int
    end: int
    error: str
    lines: tuple[str, ...]
    said: tuple[str, ...]
    numbers: tuple[int, ...]


def log_lines(data: bytes) -> list[str]:
    """Return a log as a terminal would show it, without colours."""
    return [part for line in _visible(data) for part in _apart(line)]


def written(data: bytes, trace: Trace) -> dict[int, bytes]:
    """Return the lines of a log that hold nothing but a part of a traceback.

    Args:
        data: The log, or the end of it.
        trace: A traceback in it.

    Returns:
        The lines as they were written, by their place counted from the end of the log: 1 is the
        last line.
    """
    raw = data.removesuffix(b"\n").split(b"\n")
    places = [place for place, line in enumerate(_visible(data)) for _ in _apart(line)]
    mine = set(trace.numbers)
    mixed = {place for number, place in enumerate(places) if number not in mine}
    found = {places[number] for number in mine} - mixed
    return {len(raw) - place: raw[place] for place in sorted(found)}


def _visible(data: bytes) -> list[str]:
    """Return the lines of a log as a terminal would show them, one for each line of the log."""
    text = _ESCAPE.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n")
    return [line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n")]


def last_traceback(lines: list[str], room: int) -> Trace | None:
    """Return the traceback that a replica ended with, and those that it is chained to.

    Args:
        lines: End of the replica's log.
        room: Maximum number of lines after the traceback. Other tracebacks and the output of
            libraries while a program ends do not count.
    """
    blocks = _blocks(lines)
    first = _near(lines, blocks, room)
    blocks = [
        block
        for block in blocks
        if block.end >= first
        and not block.error.startswith(_WRAPPER)
        and not (block.start and _IGNORED.match(lines[block.start - 1]))
    ]
    blocks = [*blocks[:1], *(block for block in blocks[1:] if not _is_launcher(block))]
    traces = _chains(lines, blocks)
    # Of several processes, one fails by itself, the others because that process is gone.
    last = {trace.rank: trace for trace in traces if trace.rank}
    ends = [trace for trace in traces if last.get(trace.rank) is trace] or traces[-1:]
    causes = [trace for trace in ends if not trace.consequence]
    return next(reversed(causes or ends), None)


def _is_launcher(block: _Block) -> bool:
    """Return whether a traceback is that of `accelerate launch`, whose program has failed."""
    return block.error.startswith(_LAUNCHER) and any(map(_LAUNCHER_FILE.match, block.lines))


def _near(lines: list[str], blocks: list[_Block], room: int) -> int:
    """Return the lowest end of a traceback, as a line index, that counts as the program's end."""
    within = {number for block in blocks for number in range(block.start, block.end)}
    left = room * _COST
    for number in range(len(lines) - 1, -1, -1):
        line = _RANK.sub("", lines[number])
        if number in within or line.strip() in ("", *_CHAINED) or _TEARDOWN.match(line):
            continue
        left -= _COST_INDENTED if line[:1].isspace() else _COST
        if left < 0:
            return number + 1
    return 0


def _chains(lines: list[str], blocks: list[_Block]) -> list[Trace]:
    """Return each traceback, with the tracebacks that it is chained to."""
    chains: list[list[tuple[str, _Block]]] = []
    end = 0
    for block in blocks:
        link = _link(lines[end : block.start]) if chains else ""
        if link:
            chains[-1].append((link, block))
        else:
            chains.append([("", block)])
        end = block.end
    return [_trace(lines, chain) for chain in chains]


def _trace(lines: list[str], chain: list[tuple[str, _Block]]) -> Trace:
    """Return a chain of tracebacks, each with the sentence that links it to the one before."""
    shown: list[str] = []
    said: list[str] = []
    numbers: list[int] = []
    for link, block in chain:
        if link:
            shown += ("", link, "")
            numbers += range(numbers[-1] + 1, block.start)
        if link != _CAUSED:
            said.clear()
        shown += block.lines
        said += block.said
        numbers += block.numbers
    rank = _RANK.match(lines[block.start])
    return Trace(tuple(shown), block.error, tuple(said), tuple(numbers), rank[0] if rank else "")


def _link(between: list[str]) -> str:
    """Return the sentence that chains two tracebacks; empty: they are not chained."""
    said = [text for line in between if (text := _RANK.sub("", line).strip())]
    return said[0] if len(said) == 1 and said[0] in _CHAINED else ""


def _without_addresses(trace: Trace) -> list[str]:
    return [re.sub(r"0x[0-9a-f]+|(?<!\d)\d+\.\d+\.\d+\.\d+:\d+", "…", line) for line in trace.lines]


def _apart(line: str) -> list[str]:
    """Move a traceback to its own line: a progress bar or a prompt leaves its line open."""
    head = _HEAD.search(line)
    before = line[: head.start()] if head else ""
    # "Original Traceback" is part of a message of PyTorch, and not a separate traceback.
    if not _RANK.sub("", before).strip(" \t|") or before.endswith("Original "):
        return [line]
    return [before, line[len(before) :]]


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
            return _Block(start, end, line, shown, (line, *message), places)
    return None


def _behind(margin: str, line: str) -> str | None:
    """Return a line without the margin, or None if another rank or its launcher wrote it."""
    if _RANK.match(margin) and line.strip() and not line.startswith(margin):
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
    whole, numbers = tuple(kept), tuple(range(start, start + len(kept)))
    return _Block(start, start + len(kept), error, whole, whole, numbers) if error else None
