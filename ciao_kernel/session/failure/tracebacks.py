"""Chooses the traceback that a replica ended with, and joins those that it is chained to.

A traceback that ended the program differs from a caught and logged one only by the few lines after
it. :mod:`ciao_kernel.session.failure.traceback_blocks` finds the tracebacks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ciao_kernel.session.failure.traceback_blocks import CAUSED, CHAINED, RANK, Block, apart, blocks

# Errors that the end of another replica causes: the original error is in that replica.
_CONSEQUENCE = re.compile(
    r"(?i:Connection ?(?:reset|closed|refused|aborted)|Broken ?pipe|Socket closed)"
    r"|UnavailableError|AbortedError|CancelledError|DistNetworkError|DistBackendError"
    r"|StoreTimeout|KeyboardInterrupt|SignalException"
)
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]*[0-~])?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
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


def log_lines(data: bytes) -> list[str]:
    """Return a log as a terminal would show it, without colours."""
    return [part for parts in _parts(data) for part in parts]


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
    places = [place for place, parts in enumerate(_parts(data)) for _ in parts]
    mine = set(trace.numbers)
    mixed = {place for number, place in enumerate(places) if number not in mine}
    found = {places[number] for number in mine} - mixed
    return {len(raw) - place: raw[place] for place in sorted(found)}


def _parts(data: bytes) -> list[list[str]]:
    """Return the parts of each line of a log: a traceback is apart from what is before it."""
    lines = _visible(data)
    return [apart(line, below) for line, below in zip(lines, [*lines[1:], ""], strict=True)]


def _visible(data: bytes) -> list[str]:
    """Return the lines of a log as a terminal would show them, one for each line of the log."""
    text = _ESCAPE.sub("", data.decode("utf-8", "replace"))
    return [line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n")]


def last_traceback(lines: list[str], room: int) -> Trace | None:
    """Return the traceback that a replica ended with, and those that it is chained to.

    Args:
        lines: End of the replica's log.
        room: Maximum number of lines after the traceback. Other tracebacks and the output of
            libraries while a program ends do not count.
    """
    found = blocks(lines)
    first = _near(lines, found, room)
    found = [
        block
        for block in found
        if block.end >= first
        and not block.error.startswith(_WRAPPER)
        and not (block.start and _IGNORED.match(lines[block.start - 1]))
    ]
    found = [*found[:1], *(block for block in found[1:] if not _is_launcher(block))]
    traces = _chains(lines, found)
    # Of several processes, one fails by itself, the others because that process is gone.
    last = {trace.rank: trace for trace in traces if trace.rank}
    ends = [trace for trace in traces if last.get(trace.rank) is trace] or traces[-1:]
    causes = [trace for trace in ends if not trace.consequence]
    return next(reversed(causes or ends), None)


def _is_launcher(block: Block) -> bool:
    """Return whether a traceback is that of `accelerate launch`, whose program has failed."""
    return block.error.startswith(_LAUNCHER) and any(map(_LAUNCHER_FILE.match, block.lines))


def _near(lines: list[str], found: list[Block], room: int) -> int:
    """Return the lowest end of a traceback, as a line index, that counts as the program's end."""
    within = {number for block in found for number in range(block.start, block.end)}
    left = room * _COST
    for number in range(len(lines) - 1, -1, -1):
        line = RANK.sub("", lines[number])
        if number in within or line.strip() in ("", *CHAINED) or _TEARDOWN.match(line):
            continue
        left -= _COST_INDENTED if line[:1].isspace() else _COST
        if left < 0:
            return number + 1
    return 0


def _chains(lines: list[str], found: list[Block]) -> list[Trace]:
    """Return each traceback, with the tracebacks that it is chained to."""
    chains: list[list[tuple[str, Block]]] = []
    end = 0
    for block in found:
        link = _link(lines[end : block.start]) if chains else ""
        if link:
            chains[-1].append((link, block))
        else:
            chains.append([("", block)])
        end = block.end
    return [_trace(lines, chain) for chain in chains]


def _trace(lines: list[str], chain: list[tuple[str, Block]]) -> Trace:
    """Return a chain of tracebacks, each with the sentence that links it to the one before."""
    shown: list[str] = []
    said: list[str] = []
    numbers: list[int] = []
    for link, block in chain:
        if link:
            shown += ("", link, "")
            numbers += range(numbers[-1] + 1, block.start)
        if link != CAUSED:
            said.clear()
        shown += block.lines
        said += block.said
        numbers += block.numbers
    rank = RANK.match(lines[block.start])
    return Trace(tuple(shown), block.error, tuple(said), tuple(numbers), rank[0] if rank else "")


def _link(between: list[str]) -> str:
    """Return the sentence that chains two tracebacks; empty: they are not chained."""
    said = [text for line in between if (text := RANK.sub("", line).strip())]
    return said[0] if len(said) == 1 and said[0] in CHAINED else ""


def _without_addresses(trace: Trace) -> list[str]:
    return [re.sub(r"0x[0-9a-f]+|(?<!\d)\d+\.\d+\.\d+\.\d+:\d+", "…", line) for line in trace.lines]
