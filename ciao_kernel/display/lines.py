"""From the bytes that replicas write to the lines that a person reads.

Each line stands behind its replica, ``[worker-0] step 20``, in a colour of its own. What a
cell shows is limited (a notebook that takes 100 MB of text never opens again); what is left
out is counted, said, and still whole in the replica's log file.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ciao_kernel.model import Output, Replica

_COLORS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
"""SGR codes that read well on a white and on a black ground; red is left to errors."""
_RESET = "\x1b[0m"
# Everything a terminal would obey but colour: cursor moves, titles, clearing, bells.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-ln-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])|[\x00-\x08\x0b\x0c\x0e-\x1a\x7f]")
_SGR = re.compile(r"\x1b\[[0-9;:]*m")


def clean(line: str) -> str:
    """Return a line as a terminal would leave it, with colours and without other commands."""
    line = line.removesuffix("\r")
    if "\r" in line:
        # A progress bar writes over itself: what was written last is what is seen.
        line = next((part for part in reversed(line.split("\r")) if part), "")
    if "\x1b" in line or not line.isprintable():
        line = _ESCAPES.sub("", line)
    return line


def plain(line: str) -> str:
    """Return a line without any escape sequence, for HTML and for files."""
    return _SGR.sub("", clean(line)).replace("\x1b", "")


class Prefixer:
    """Puts replicas' names in front of their lines.

    Args:
        color: Whether names are coloured.
        limit: Characters of one line that are shown.
    """

    def __init__(self, *, color: bool, limit: int) -> None:
        self._color = color
        self._limit = limit
        self._prefixes: dict[Replica, str] = {}

    def prefix(self, replica: Replica) -> str:
        """``[worker-0] `` with its colour; the colour is the same in every kernel."""
        if replica not in self._prefixes:
            text = f"[{replica}] "
            if self._color:
                number = _COLORS[(sum(map(ord, replica.role)) + replica.index) % len(_COLORS)]
                text = f"\x1b[{number}m{text}{_RESET}"
            self._prefixes[replica] = text
        return self._prefixes[replica]

    def format(self, replica: Replica, data: bytes) -> str:
        """Return whole lines with their prefixes, each with its line end."""
        text = data.decode("utf-8", "replace")
        prefix = self.prefix(replica)
        lines = text.removesuffix("\n").split("\n")
        return "".join(f"{prefix}{self._line(line)}\n" for line in lines)

    def _line(self, line: str) -> str:
        if not line.isprintable():
            line = clean(line)
        if len(line) > self._limit:
            line = f"{line[: self._limit]} … ({len(line):,} characters; all of them are in the log file)"
        if "\x1b" in line:
            line = line + _RESET if self._color else _SGR.sub("", line)
        return line


@dataclass(slots=True)
class Count:
    """How many lines of one replica came, and how many of them were left out."""

    lines: int = 0
    left_out: int = 0


class Batcher:
    """Collects lines and gives them out in batches, within a rate and a total.

    Args:
        prefixer: Formats the lines.
        rate: Bytes a second that may be shown.
        total: Bytes that may be shown in all.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        prefixer: Prefixer,
        *,
        rate: float,
        total: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts: dict[Replica, Count] = {}
        self._prefixer = prefixer
        self._rate = rate
        self._left = total
        self._clock = clock
        self._credit = rate
        self._counted = clock()
        self._pending: list[Output] = []
        self._full_said = False

    def __bool__(self) -> bool:
        return bool(self._pending)

    def add(self, output: Output) -> None:
        """Take whole lines of one replica."""
        count = self.counts.setdefault(output.replica, Count())
        count.lines += output.lines
        if output.data:
            self._pending.append(output)

    def charge(self, size: int) -> None:
        """Count bytes that were shown in another way, such as a table."""
        self._credit -= size

    def take(self) -> str:
        """Return the text of all that was added since the last call; what is too much is left out."""
        pending, self._pending = self._pending, []
        now = self._clock()
        self._credit = min(self._rate, self._credit + self._rate * (now - self._counted))
        self._counted = now
        if not pending:
            return ""
        room = int(min(self._credit, self._left))
        if sum(map(self._size, pending)) > room:
            text = self._most(pending, max(0, room))
        else:
            text = "".join(self._prefixer.format(one.replica, one.data) for one in pending)
        self._credit -= len(text)
        self._left -= len(text)
        return text

    def _size(self, output: Output) -> int:
        # On the wire an escape character takes six bytes: "\u001b".
        return len(output.data) + output.lines * (len(self._prefixer.prefix(output.replica)) + 10)

    def _most(self, pending: list[Output], room: int) -> str:
        """Show the last lines of each replica, as many as fit, and say how many do not."""
        by_replica: dict[Replica, list[Output]] = {}
        for one in pending:
            by_replica.setdefault(one.replica, []).append(one)
        share = room // len(by_replica)
        parts = []
        for replica, several in by_replica.items():
            kept, lines = self._tail(replica, several, share)
            left_out = sum(one.lines for one in several) - lines
            self.counts[replica].left_out += left_out
            prefix = self._prefixer.prefix(replica)
            if left_out and (share or not self._full_said):
                parts.append(f"{prefix}… {left_out:,} lines are not shown here …\n")
            if kept:
                parts.append(self._prefixer.format(replica, kept))
        if not share and not self._full_said:
            self._full_said = True
            parts.append("… this cell shows no more; the log files in the table go on …\n")
        return "".join(parts)

    def _tail(self, replica: Replica, several: Iterable[Output], share: int) -> tuple[bytes, int]:
        overhead = len(self._prefixer.prefix(replica)) + 10
        data = b"".join(one.data for one in several)
        start, lines = len(data), 0
        budget = share
        while start > 0:
            previous = data.rfind(b"\n", 0, start - 1) + 1
            # An over-long line is cut when it is shown, so it costs no more than the cut.
            budget -= start - previous + overhead
            if budget < 0:
                break
            start, lines = previous, lines + 1
        return data[start:], lines
