"""Batches of replicas' lines for a cell, within its limits.

The output of a cell is limited (a notebook with 100 MB of text never opens again); lines left out
are counted and reported, and the replica's log file still has all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ciao_kernel.display.lines import Prefixer, wire_size
from ciao_kernel.display.message_rate import MessageRate
from ciao_kernel.model import Output, Replica


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
        self._rate = MessageRate(rate, clock)
        self._left = total
        self._pending: list[Output] = []
        self._fresh = 0
        self._missing: dict[Replica, int] = {}
        self._limit_reported = False

    def __bool__(self) -> bool:
        return bool(self._pending)

    def add(self, output: Output, *, last: bool = False) -> None:
        """Add whole lines of one replica.

        Args:
            output: The lines.
            last: They are among those that ``take(last=True)`` returns now: none is cut before.
        """
        count = self.counts.setdefault(output.replica, Count())
        count.lines += output.lines
        if output.data:
            self._pending.append(output)
            self._fresh += self._size(output)
            if self._fresh > 2 * self._rate.burst and not last:
                # A batch never shows more than this.
                self._cut(int(self._rate.burst))

    def charge(self, size: int) -> None:
        """Count bytes that were shown in another way, such as a table."""
        self._rate.charge(size)

    def take(self, *, at_once: bool = False, last: bool = False) -> str:
        """Return the text added since the last call; lines beyond the limits are left out.

        Args:
            at_once: Something follows these lines: they may exceed the rate, but not what Jupyter
                Server passes on.
            last: The same at the end of a job, after which hardly anything follows.
        """
        at_once = at_once or last
        room, burst = self._rate.room(), self._rate.burst
        room = max(room, self._rate.room_at_once()) if at_once else room
        room = max(room, burst / 4) if last else room
        if not (self._pending or self._missing):
            return ""
        needed = sum(map(self._size, self._pending))
        fits = needed <= burst and not self._missing and not at_once
        if self._left > 0 and room < (needed if fits else min(needed, burst / 8)):
            return ""  # All of it fits a little later, or at least more.
        if self._left <= 0:
            return self._drop_pending()
        room = min(room, self._left)
        if needed > room:
            self._cut(int(room))
        text, fitting = self._text(), room
        while (size := wire_size(text)) > room and at_once and self._pending:
            # Of characters that JSON escapes less fits, and nothing makes up for it later.
            fitting = int(fitting * room / size)
            self._cut(fitting)
            text = self._text()
        self._pending, self._fresh, self._missing = [], 0, {}
        self._rate.spend(size)
        self._left -= size
        return text

    def _text(self) -> str:
        parts = (self._prefixer.format(one.replica, one.data) for one in self._pending)
        return _not_shown(self._missing) + "".join(parts)

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
