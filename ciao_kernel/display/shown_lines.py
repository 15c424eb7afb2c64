"""Lines of a job in a cell: as text, or meanwhile in an output that is updated.

Text that a cell shows cannot be taken back. Lines that the cell may not keep wait until this is
known: those of a long log, and those from a traceback on.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping

from ciao_kernel.config import Settings
from ciao_kernel.display.excerpt import Excerpt, left_out_text
from ciao_kernel.display.held_tracebacks import HeldTracebacks
from ciao_kernel.display.line_batches import Batcher
from ciao_kernel.display.lines import Prefixer
from ciao_kernel.display.live_lines import LiveLines
from ciao_kernel.display.publisher import Publisher
from ciao_kernel.display.table import Table
from ciao_kernel.model import Output, Replica

_HIDDEN = 1.0
"""Seconds in which a traceback is not shown: most failures are known by then."""


class ShownLines:
    """Sends the lines of a job in batches, and those that wait to a place below them.

    Args:
        publisher: Sends the output.
        settings: Rates, limits and colour.
        redraw_rate: Maximum number of bytes per second of the place of the lines that wait.
    """

    def __init__(self, publisher: Publisher, settings: Settings, redraw_rate: float) -> None:
        self._publisher, self._settings, self._redraw_rate = publisher, settings, redraw_rate
        self._table: Table | None = None
        self._batcher = self._new_batcher()
        self._excerpt = Excerpt(settings.lines, 0)
        self._tracebacks = HeldTracebacks(0)
        self._live: LiveLines | None = None
        self._left_out = 0
        self._unsent = ""
        self.sent = 0.0
        """Time of the last message."""

    def begin(self, table: Table) -> None:
        """Begin with the lines of a job."""
        job = table.job
        self._table = table
        self._batcher = self._new_batcher()
        self._excerpt = Excerpt(job.lines or self._settings.lines, len(job.replicas))
        self._tracebacks = HeldTracebacks(len(job.replicas))
        self._live, self._left_out = self._new_live(table), 0

    def charge(self, size: int) -> None:
        """Count bytes of other outputs of the cell against the output rate."""
        self._batcher.charge(size)

    def add(self, event: Output, *, held: bool) -> None:
        """Take lines of a replica.

        Args:
            event: The lines.
            held: Hold lines from a traceback on: an error may still repeat them.
        """
        self._add(self._tracebacks.add(event) if held else [event])

    def add_due(self) -> None:
        """Let lines become text whose program has gone on behind a traceback."""
        if self._tracebacks and self._table is not None:
            self._add(self._tracebacks.due(self._table.status))

    def let_go(self, repeats: Mapping[Replica, Mapping[int, bytes]] | None = None) -> None:
        """Let the lines from a traceback on become text, except for those that an error repeats."""
        lines, left_out = self._tracebacks.close(repeats or {})
        self._add(lines)
        self._left_out += left_out

    def say(self, text: str) -> None:
        """Add a text of ciao behind the lines before it, also if the rate lets these wait.

        Lines that the excerpt holds back follow it.
        """
        self._unsent += self._batcher.take(at_once=True) + text

    def finish(self) -> None:
        """Move all lines to the text, also the newest ones that the excerpt holds."""
        self._take_held()
        self._unsent += self._batcher.take(last=True)

    def send(self) -> None:
        """Send the text that may be sent now."""
        self._unsent += self._batcher.take()
        if self._unsent:
            # Kept until it is sent: text that fails now is sent with the next message.
            self._publisher.stream(self._unsent)
            self._unsent, self.sent = "", time.monotonic()

    def send_held(self) -> None:
        """Send the text with the newest lines that the excerpt holds."""
        self._take_held()
        self.send()
        self._renew_live()

    def draw_live(self) -> None:
        """Show the newest of the held lines, below all lines that came before them."""
        live, tracebacks = self._live, self._tracebacks
        if live is None or self._table is None or self._batcher or self._unsent:
            return
        if self._excerpt or tracebacks.waited() > _HIDDEN:
            self.charge(live.draw_if_due(self._excerpt, tracebacks, self._table.watched()))
        elif not tracebacks:
            self._renew_live()

    def hurry(self) -> None:
        """Show the next held lines soon, however old the job is."""
        if self._live is not None:
            self._live.urgent = True

    def clear_live(self) -> None:
        """Empty the place of held lines."""
        if self._live is not None:
            self._live.clear()

    def count_text(self) -> str:
        """Return how many lines are text, with a line feed; "" if all are."""
        counts = self._batcher.counts.values()
        lines = sum(count.lines for count in counts)
        left_out = sum(count.left_out for count in counts)
        if not left_out:
            return ""
        shown, lines = lines - left_out, lines + self._left_out
        return f"{shown:,} of {lines:,} lines are shown; all are in the log files.\n"

    def _add(self, events: Iterable[Output]) -> None:
        for event in events:
            if (first := self._excerpt.add(event)) is not None:
                self._batcher.add(first)

    def _take_held(self) -> None:
        """Move the newest lines that the excerpt holds to the text, below the lines before them."""
        table = self._table
        if not self._excerpt or table is None:
            return
        self._unsent += self._batcher.take(last=True)
        left_out, newest = self._excerpt.close()
        self._left_out += sum(left_out.values())
        if text := left_out_text(table.job, table.status, left_out):
            self._unsent += f"{text}\n"
        for event in newest:
            self._batcher.add(event, last=True)
        self._unsent += self._batcher.take(last=True)

    def _renew_live(self) -> None:
        """Empty the output of the held lines; the next one is below the lines so far."""
        if self._live is not None and self._table is not None and self._live.begun:
            self._live.clear()
            self._live = self._new_live(self._table)

    def _new_live(self, table: Table) -> LiveLines:
        name = f"ciao-{secrets.token_hex(8)}"
        most = table.job.lines or self._settings.lines
        return LiveLines(table.job, self._publisher, name, most, self._redraw_rate)

    def _new_batcher(self) -> Batcher:
        settings = self._settings
        prefixer = Prefixer(
            color=settings.color != "never",
            limit=int(settings.line_limit),
        )
        return Batcher(prefixer, rate=settings.output_rate, total=settings.output_limit)
