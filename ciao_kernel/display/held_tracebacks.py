"""Holds the lines of a replica from a traceback on: the error of the cell may repeat them.

Text that a cell shows cannot be taken back. These lines therefore wait until the job has failed, or
until the program has clearly gone on; an output that is updated shows them meanwhile. One line
stands for a traceback that the error repeats, and one for what torchrun reports about a process
that has failed. All other lines become text, as they were written.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ciao_kernel.frameworks import torchrun_report
from ciao_kernel.model import Output, Replica, Status
from ciao_kernel.visible_text import counted

_HEAD = re.compile(rb"^.*Traceback \(most recent call last\):[ \t]*\r?$", re.MULTILINE)
_SIGN = b"Traceback (most recent call last):"
_PATIENCE = 10.0
"""Seconds in which a program ends after its last traceback: frameworks take some to close down."""
_MOST = 300
"""Maximum number of lines held of one replica: a program that writes more has gone on."""
_MOST_BYTES = 64 * 1024
_ALL_BYTES = 16 * 1024 * 1024
"""Maximum bytes held of all replicas together."""


@dataclass(slots=True)
class _Section:
    """Lines of one replica from one traceback to the next."""

    since: float
    data: bytes


class HeldTracebacks:
    """Lines of replicas from a traceback on.

    Args:
        replicas: Number of replicas.
        clock: Seconds, monotonic.
    """

    def __init__(self, replicas: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_bytes = min(_MOST_BYTES, _ALL_BYTES // max(1, replicas))
        self._clock = clock
        self._held: dict[Replica, list[_Section]] = {}
        self.count = 0
        """Number of changes so far."""

    def __bool__(self) -> bool:
        return bool(self._held)

    def add(self, event: Output) -> list[Output]:
        """Hold the lines of an output from a traceback on; return the lines that need not wait.

        Args:
            event: Output of one replica.
        """
        before, *new = _sections(event.data)
        held = self._held.get(event.replica, [])
        if not event.data or not (held or new):
            return [event]
        free = []
        if held:
            held[-1].data = _joined(held[-1].data, before)
        elif before:
            free.append(_output(event.replica, before))
        held += [_Section(self._clock(), data) for data in new]
        self._held[event.replica] = held
        self.count += 1
        return free + self._release(event.replica, self._excess(held))

    def due(self, status: Status | None) -> list[Output]:
        """Return the lines of programs that have gone on long enough after a traceback.

        Args:
            status: The job's. The lines of replicas that have ended wait for the end of the job.
        """
        latest = self._clock() - _PATIENCE
        if not any(held[0].since < latest for held in self._held.values()):
            return []
        ended = {one.replica for one in status.replicas if one.state.over} if status else set()
        going_on = [replica for replica in self._held if replica not in ended]
        return [
            output
            for replica in going_on
            for output in self._release(
                replica, sum(one.since < latest for one in self._held[replica])
            )
        ]

    def waited(self) -> float:
        """Return the seconds that the oldest of the lines have waited; 0 if there are none."""
        now = self._clock()
        return max((now - held[0].since for held in self._held.values()), default=0.0)

    def newest(self) -> list[Output]:
        """Return the held lines."""
        return [output for who, held in self._held.items() for output in _folded(who, held)]

    def close(self, repeats: Mapping[Replica, Mapping[int, bytes]]) -> tuple[list[Output], int]:
        """Return the held lines, and the number of lines left out; nothing is held any more.

        Args:
            repeats: Lines that an error repeats, see :class:`ciao_kernel.errors.JobFailed`.
        """
        held, self._held = self._held, {}
        self.count += len(held)
        found, left_out = [], 0
        for replica, sections in held.items():
            lines = [line for one in sections for line in split_lines(one.data)]
            kept = _without_reports(_fold(lines, repeats.get(replica, {})))
            left_out += len(lines) - len(kept)
            found.append(_output(replica, b"".join(line + b"\n" for line in kept)))
        return found, left_out

    def _release(self, replica: Replica, count: int) -> list[Output]:
        """Return the oldest sections of a replica; they are no longer held."""
        held = self._held[replica]
        free, held[:] = held[:count], held[count:]
        self.count += len(free)
        if not held:
            del self._held[replica]
        return _folded(replica, free)

    def _excess(self, held: list[_Section]) -> int:
        """Return the number of oldest sections that are more than may be held."""
        sizes = [(len(one.data), one.data.count(b"\n")) for one in held]
        size, lines = sum(size for size, _ in sizes), sum(lines for _, lines in sizes)
        for number, (first_size, first_lines) in enumerate(sizes):
            if size <= self._most_bytes and lines <= _MOST:
                return number
            size, lines = size - first_size, lines - first_lines
        return len(held)


def _sections(data: bytes) -> list[bytes]:
    """Cut lines before each traceback; the first part, maybe empty, is before all of them."""
    if _SIGN not in data and torchrun_report.SIGN not in data:  # the usual case, much faster
        return [data]
    heads = (_HEAD, torchrun_report.START)
    starts = sorted(match.start() for head in heads for match in head.finditer(data))
    ends = [*starts, len(data)]
    return [data[start:end] for start, end in zip([0, *starts], ends, strict=True)]


def _joined(one: bytes, other: bytes) -> bytes:
    # A last line without a line feed stays a line of its own.
    return one + other if one.endswith(b"\n") or not other else one + b"\n" + other


def split_lines(data: bytes) -> list[bytes]:
    """Return the lines of an output; the last one may lack its line feed."""
    return data.removesuffix(b"\n").split(b"\n")


def _output(replica: Replica, data: bytes) -> Output:
    return Output(replica, data, len(split_lines(data)))


def _fold(lines: list[bytes], repeated: Mapping[int, bytes]) -> list[bytes]:
    """Return lines with one line in place of each run of repeated ones.

    A traceback whose lines are not all here is left as it is: the others have been shown.
    """
    count = len(lines)
    if any(place > count or lines[-place] != line for place, line in repeated.items()):
        return lines
    kept: list[bytes] = []
    run = 0
    for number, line in enumerate(lines):
        if count - number in repeated:
            run += 1
            if count - number - 1 not in repeated:
                kept.append(_stand_in(run))
                run = 0
        else:
            kept.append(line)
    return kept


def _stand_in(lines: int) -> bytes:
    return f"… {counted(lines, 'line')} of the traceback shown below …".encode()


def _folded(replica: Replica, sections: Sequence[_Section]) -> list[Output]:
    """Return lines of one replica, with one line for each report of torchrun."""
    if not any(torchrun_report.SIGN in one.data for one in sections):
        return [_output(replica, one.data) for one in sections]
    lines = [line for one in sections for line in split_lines(one.data)]
    return [_output(replica, b"".join(line + b"\n" for line in _without_reports(lines)))]


def _without_reports(lines: list[bytes]) -> list[bytes]:
    """Return lines with one line in place of each report of torchrun."""
    return [line for line, _ in folded_reports(lines)]


def folded_reports(lines: Sequence[bytes]) -> Iterator[tuple[bytes, int]]:
    """Yield the lines to show, each with the number of lines that it stands for.

    Args:
        lines: Lines of one replica; one line stands for each report of torchrun among them.
    """
    found = {one.last: one for one in torchrun_report.reports(lines)}
    left_out = frozenset[int]().union(*(one.places for one in found.values()))
    for number, line in enumerate(lines):
        if report := found.get(number):
            yield _report_stand_in(report), len(report.places)
        elif number not in left_out:
            yield line, 1


def _report_stand_in(report: torchrun_report.Report) -> bytes:
    said = f": {report.summary}" if report.summary else ""
    return f"… {len(report.places)} lines of torchrun's own report{said} …".encode()
