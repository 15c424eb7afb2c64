"""Turns the bytes that replicas write into readable lines.

Each line follows the name of its replica, ``[worker-0] step 20``; each replica has its own colour.
The output of a cell is limited (a notebook with 100 MB of text never opens again); lines left out
are counted and reported, and the replica's log file still has all of them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ciao_kernel.model import Output, Replica
from ciao_kernel.model.replica_colors import color_of
from ciao_kernel.visible_text import visible

_RESET = "\x1b[0m"
_BURST = 0.5
"""Seconds whose bytes may be sent at once. Jupyter Server counts over 3 s: this leaves room."""
_SGR = re.compile(r"\x1b\[[0-9;:]*m")
# All terminal commands except colours: cursor moves, titles, clearing, bells.
_ESCAPES = re.compile(
    r"\x1b\[(?![0-9;:]*m)[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links and other strings
    r"|\x1b[ -/]*[0-Z\\-~]"
    r"|\x1b(?!\[[0-9;:]*m)"  # cut off
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"
)
_LINE_ENDS = {"\u2028": r"\u2028", "\u2029": r"\u2029"}
"""Line ends for a page, but not for a log: what follows could look like another replica's line."""
_CUT_OFF = re.compile(r"\x1b[^m]*\Z")


def clean(line: str) -> str:
    """Return a line as a terminal would show it, with colours but without other commands."""
    line = _ESCAPES.sub("", line.removesuffix("\r"))
    for end, shown in _LINE_ENDS.items():
        line = line.replace(end, shown)
    if "\r" in line:
        # A progress bar overwrites itself: only its last text is visible.
        parts = line.split("\r")
        line = next((part for part in reversed(parts) if _SGR.sub("", part).strip()), "")
    return line


def plain(line: str) -> str:
    """Return a line without any escape sequence, for HTML and for files."""
    return _SGR.sub("", clean(line))


NO_LIMIT = 10**9
"""Line limit for terminals and pipes, which accept lines of any length."""


class Prefixer:
    """Puts replicas' names in front of their lines.

    Args:
        color: Colour the names.
        limit: Maximum number of characters shown of one line.
    """

    def __init__(self, *, color: bool, limit: int) -> None:
        self._color = color
        self.limit = limit
        self._prefixes: dict[Replica, str] = {}

    def prefix(self, replica: Replica) -> str:
        """Return ``[worker-0] `` with its colour, which is the same wherever the job is shown."""
        if replica not in self._prefixes:
            text = f"[{visible(str(replica))}] "
            if self._color:
                text = f"\x1b[{color_of(replica).sgr}m{text}{_RESET}"
            self._prefixes[replica] = text
        return self._prefixes[replica]

    def format(self, replica: Replica, data: bytes) -> str:
        """Return whole lines with their prefixes, each with its line end."""
        text = data.decode("utf-8", "replace")
        prefix = self.prefix(replica)
        text = text.removesuffix("\n")
        if text.replace("\n", "").replace("\t", "").isprintable() and self._all_fit(text):
            # As below, but for all lines at once: most lines are like that.
            return prefix + text.replace("\n", f"\n{prefix}") + "\n"
        lines = text.split("\n")
        return "".join(f"{prefix}{self._line(line)}\n" for line in lines)

    def _all_fit(self, text: str) -> bool:
        return len(text) <= self.limit or max(map(len, text.split("\n"))) <= self.limit

    def _line(self, line: str) -> str:
        if not line.isprintable():
            line = clean(line)
        if len(line) > self.limit:
            kept = _CUT_OFF.sub("", line[: self.limit])
            line = f"{kept} … ({len(line):,} characters; all of them are in the log file)"
        if "\x1b" in line:
            line = line + _RESET if self._color else _SGR.sub("", line)
        return line


@dataclass(slots=True)
class Count:
    """Number of lines of one replica, and number of lines left out."""

    lines: int = 0
    left_out: int = 0


class Batcher:
    """Collects lines and returns them in batches, limited by a rate and a total.

    Args:
        prefixer: Formats the lines.
        rate: Maximum number of bytes shown per second.
        total: Maximum number of bytes shown in all.
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
        self._burst = rate * _BURST
        self._left = total
        self._clock = clock
        self._credit = self._burst
        self._counted = clock()
        self._pending: list[Output] = []
        self._fresh = 0
        self._missing: dict[Replica, int] = {}
        self._limit_reported = False

    def __bool__(self) -> bool:
        return bool(self._pending)

    def add(self, output: Output) -> None:
        """Add whole lines of one replica."""
        count = self.counts.setdefault(output.replica, Count())
        count.lines += output.lines
        if output.data:
            self._pending.append(output)
            self._fresh += self._size(output)
            if self._fresh > 2 * self._burst:
                # A batch never shows more than this.
                self._cut(int(self._burst))

    def charge(self, size: int) -> None:
        """Count bytes that were shown in another way, such as a table."""
        self._credit = max(self._credit - size, -self._burst)

    def take(self, *, last: bool = False) -> str:
        """Return the text added since the last call; lines beyond the limits are left out.

        Args:
            last: No more lines follow: the end of a job may exceed the rate a little.
        """
        now = self._clock()
        self._credit = min(self._burst, self._credit + self._rate * (now - self._counted))
        self._counted = now
        room = max(self._credit, self._burst / 4) if last else self._credit
        if not (self._pending or self._missing):
            return ""
        needed = sum(map(self._size, self._pending))
        fits = needed <= self._burst and not self._missing and not last
        if self._left > 0 and room < (needed if fits else min(needed, self._burst / 8)):
            return ""  # All of it fits a little later, or at least more.
        if self._left <= 0:
            return self._drop_pending()
        room = min(room, self._left)
        if needed > room:
            self._cut(int(room))
        parts = (self._prefixer.format(one.replica, one.data) for one in self._pending)
        text = _not_shown(self._missing) + "".join(parts)
        self._pending, self._fresh, self._missing = [], 0, {}
        size = wire_size(text)
        self.charge(size)
        self._left -= size
        return text

    def _size(self, output: Output) -> int:
        return len(output.data) + output.lines * self._overhead(output.replica)

    def _overhead(self, replica: Replica) -> int:
        """Return the bytes of a line's prefix and end."""
        return wire_size(self._prefixer.prefix(replica)) + 2

    def _drop_pending(self) -> str:
        for one in self._pending:
            self.counts[one.replica].left_out += one.lines
        self._pending, self._fresh, self._missing = [], 0, {}
        if self._limit_reported:
            return ""
        self._limit_reported = True
        return "… output limit reached; the rest is in the log files in the table …\n"

    def _cut(self, room: int) -> None:
        """Keep the last lines of each replica that fit, and count the others."""
        written: dict[Replica, list[Output]] = {}
        needs: dict[Replica, int] = {}
        for one in self._pending:
            written.setdefault(one.replica, []).append(one)
            needs[one.replica] = needs.get(one.replica, 0) + self._size(one)
        self._pending, self._fresh = [], 0
        # Quiet replicas first: the unused part of their share goes to the others.
        for number, replica in enumerate(sorted(written, key=lambda one: needs[one])):
            share = min(needs[replica], room // (len(written) - number))
            room -= share
            kept, lines = self._tail(replica, written[replica], share)
            left_out = sum(one.lines for one in written[replica]) - lines
            if left_out:
                self.counts[replica].left_out += left_out
                self._missing[replica] = self._missing.get(replica, 0) + left_out
            if kept:
                self._pending.append(Output(replica, kept, lines))

    def _tail(self, replica: Replica, several: Iterable[Output], share: int) -> tuple[bytes, int]:
        data = b"".join(one.data for one in several)
        start, lines = len(data), 0
        while start > 0:
            previous = data.rfind(b"\n", 0, start - 1) + 1
            # An overlong line is cut when it is shown, so only its shown part counts.
            share -= min(start - previous, 4 * self._prefixer.limit) + self._overhead(replica)
            if share < 0:
                break
            start, lines = previous, lines + 1
        return data[start:], lines


def _not_shown(missing: dict[Replica, int]) -> str:
    if not missing:
        return ""
    who = ", ".join(map(str, missing)) if len(missing) <= 3 else f"{len(missing)} replicas"
    return f"… {sum(missing.values()):,} lines of {who} are not shown here …\n"


def wire_size(text: str) -> int:
    """Return the bytes of a text in a message: UTF-8 in JSON, which escapes some characters."""
    quoted = text.count("\n") + text.count('"') + text.count("\\")
    return len(text.encode("utf-8", "replace")) + quoted + 5 * text.count("\x1b")
