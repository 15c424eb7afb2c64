"""First and last lines of each replica: what a cell keeps of a long log (``%lines``).

A display shows the first lines at once, and holds the others until the job ends. Of those only the
newest are kept; the number of the others is known. Nothing is lost: log files, ``%ciao logs``,
``%plot`` and the explanation of a failure have every line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from ciao_kernel.model import Job, Output, Replica, Status
from ciao_kernel.visible_text import visible

_HELD = 16 * 1024 * 1024
"""Maximum bytes held of all replicas together; each of a thousand replicas gets less."""


class Excerpt:
    """Divides the output of replicas into first lines, and newest lines that are held.

    Args:
        most: Number of first lines, and of last lines, of each replica.
        replicas: Number of replicas.
    """

    def __init__(self, most: int, replicas: int) -> None:
        self._most = most
        self._size = _HELD // max(1, replicas)
        self._first: dict[Replica, int] = {}
        self._held: dict[Replica, _Newest] = {}
        self.count = 0
        """Number of outputs that were held so far."""

    def __bool__(self) -> bool:
        return bool(self._held)

    def add(self, event: Output) -> Output | None:
        """Return the part of an output that belongs to the first lines; hold the rest.

        Args:
            event: Output of one replica; one without lines is returned unchanged.
        """
        shown = self._first.get(event.replica, 0)
        room = self._most - shown
        if event.lines <= room or not event.data:
            self._first[event.replica] = shown + event.lines
            return event
        self._first[event.replica] = self._most
        place = _after(event.data, room)
        self.count += 1
        rest = replace(event, data=event.data[place:], lines=event.lines - room)
        self._held.setdefault(event.replica, _Newest(self._most, self._size)).add(self.count, rest)
        return replace(event, data=event.data[:place], lines=room, tail=b"") if room else None

    def newest(self) -> list[Output]:
        """Return the held lines of all replicas in the order in which they came."""
        held = [part for one in self._held.values() for part in one.parts]
        return [event for _, event in sorted(held, key=lambda part: part[0])]

    def close(self) -> tuple[dict[Replica, int], list[Output]]:
        """Return the number of lines left out of each replica and the held lines; start again."""
        for one in self._held.values():
            one.trim()
        newest = self.newest()
        left_out = {replica: one.dropped for replica, one in self._held.items() if one.dropped}
        self._first, self._held = {}, {}
        return left_out, newest


class _Newest:
    """The newest lines of one replica, and the number of those before them.

    Whole outputs are dropped while lines come; :meth:`trim` cuts the oldest one to the line.
    """

    def __init__(self, most: int, size: int) -> None:
        self._most = most
        self._room = size
        self._lines = 0
        self._bytes = 0
        self.parts: deque[tuple[int, Output]] = deque()
        self.dropped = 0

    def add(self, order: int, event: Output) -> None:
        if event.lines > self._most:  # a flood brings thousands of lines in one output
            event = self._cut(event, event.lines - self._most)
        self.parts.append((order, event))
        self._lines += event.lines
        self._bytes += len(event.data)
        while len(self.parts) > 1 and (
            self._lines - self.parts[0][1].lines >= self._most or self._bytes > self._room
        ):
            _, old = self.parts.popleft()
            self._lines -= old.lines
            self._bytes -= len(old.data)
            self.dropped += old.lines

    def trim(self) -> None:
        if self._lines > self._most:
            order, oldest = self.parts[0]
            self.parts[0] = (order, self._cut(oldest, self._lines - self._most))
            self._lines = self._most

    def _cut(self, event: Output, lines: int) -> Output:
        self.dropped += lines
        rest = event.data[_after(event.data, lines) :]
        return replace(event, data=rest, lines=event.lines - lines)


def _after(data: bytes, lines: int) -> int:
    """Return the offset behind this many lines."""
    place = 0
    for _ in range(lines):
        place = data.find(b"\n", place) + 1 or len(data)
    return place


def left_out_text(job: Job, status: Status | None, left_out: Mapping[Replica, int]) -> str:
    """Return the line in place of the lines left out, or "" if there are none.

    Args:
        job: The job; no command shows the lines if its logs are not kept.
        status: Its status, for the log files.
        left_out: Number of lines of each replica.
    """
    if not left_out:
        return ""
    count = sum(left_out.values())
    names = ", ".join(map(str, left_out)) if len(left_out) <= 3 else f"{len(left_out)} replicas"
    if not job.logs_kept:
        lines = f"1 line of {names} is" if count == 1 else f"{count:,} lines of {names} are"
        return visible(
            f"… {lines} left out here, and %cleanPolicy=all removes the log files: the next run "
            "keeps all lines with %lines=all …"
        )
    command = f"%ciao logs {job.reference}"
    known = status.replicas if status else ()
    logs = {one.replica: one.log for one in known if one.log and one.replica in left_out}
    place = ""
    if len(left_out) == 1:
        command += f" --replica {next(iter(left_out))}"
        place = "".join(logs.values())
    elif logs:
        place = next(iter(logs.values())).rpartition("/")[0]
    also = f"; all are in {place}" if place else ""
    if count == 1:
        text = f"… 1 line of {names} is left out here: `{command}` shows it{also} …"
    else:
        text = f"… {count:,} lines of {names} are left out here: `{command}` shows them{also} …"
    return visible(text)
