"""Finds what torchrun itself writes about a failed process: some 35 lines in each replica.

The process has written its own traceback before. The report adds only the exit code, in the middle
of torchrun's own stack. ``torch/distributed/elastic/multiprocessing/errors/__init__.py`` writes it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ciao_kernel.model import exit_text

START = re.compile(
    rb"^[EW]\d{4} [^\n]{0,300}?torch[./]distributed[./]elastic[^\]\n]{0,200}\] (?:"
    rb"failed \(exitcode: |Sending process \d+ closing signal|Received \d+ death signal)",
    re.MULTILINE,
)
"""The lines that come before the report, at the start of a line."""
SIGN = b"distributed/elastic"
"""Part of each of these lines, for a fast search."""
_TRACEBACK = b"Traceback (most recent call last):"
_FRAME_OF_TORCHRUN = re.compile(rb"^  File \"[^\"]*/?torch/distributed/run\.py\", line \d+, in ")
_FAILED = b"torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"
_STOPPED = b"torch.distributed.elastic.multiprocessing.api.SignalException:"
_BORDER = re.compile(rb"^={20,}\s*$")
_RANK = re.compile(rb"^  rank +: (\d+)")
_CODE = re.compile(rb"^  exitcode +: (-?\d+)")
_ROOT = b"Root Cause"
_MOST = 2000
"""Maximum number of lines of a report: torchrun may have many processes."""


@dataclass(frozen=True, slots=True)
class Report:
    """One report of torchrun.

    Attributes:
        places: Indices of its lines, and of those that come before it.
        last: Index of its last line.
        summary: What it says, such as ``rank 0 ended with exit code 1``; "" if nothing.
    """

    places: frozenset[int]
    last: int
    summary: str


def reports(lines: Sequence[bytes]) -> list[Report]:
    """Return the complete reports in lines of one replica's log."""
    found: list[Report] = []
    before: list[int] = []
    number = 0
    while number < len(lines):
        if START.match(lines[number]):
            before.append(number)
        elif lines[number].rstrip() == _TRACEBACK and (end := _end(lines, number)):
            places = frozenset([*before, *range(number, end)])
            found.append(Report(places, end - 1, _summary(lines[number:end])))
            before.clear()
            number = end - 1
        number += 1
    return found


def without_reports(lines: Sequence[bytes]) -> tuple[list[bytes], str]:
    """Return lines of a log without torchrun's reports, and the summary of the last one or ""."""
    found = reports(lines)
    places = frozenset[int]().union(*(one.places for one in found))
    kept = [line for number, line in enumerate(lines) if number not in places]
    return kept, next((one.summary for one in reversed(found) if one.summary), "")


def _end(lines: Sequence[bytes], start: int) -> int:
    """Return the index behind torchrun's traceback with its report; 0 if it is another's."""
    own = False
    for number in range(start + 1, min(len(lines), start + _MOST)):
        line = lines[number]
        if line.startswith(_FAILED):
            return _behind_borders(lines, number + 1) if own else 0
        if line.startswith(_STOPPED):
            return number + 1 if own else 0
        if not line.startswith(b" "):
            return 0
        own = own or _FRAME_OF_TORCHRUN.match(line) is not None
    return 0


def _behind_borders(lines: Sequence[bytes], start: int) -> int:
    """Return the index behind the second border, or 0 if the report is cut off."""
    seen = 0
    for number in range(start, min(len(lines), start + _MOST)):
        seen += _BORDER.match(lines[number]) is not None
        if seen == 2:
            return number + 1
    return 0


def _summary(lines: Sequence[bytes]) -> str:
    rank = code = ""
    root = False
    for line in lines:
        root = root or line.startswith(_ROOT)
        if root and (match := _RANK.match(line)):
            rank = match[1].decode()
        elif root and (match := _CODE.match(line)):
            number = int(match[1])
            code = f"{'was killed by' if number < 0 else 'ended with'} {exit_text(number)}"
    return f"rank {rank} {code}" if rank and code else ""
