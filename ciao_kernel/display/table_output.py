"""Place of a job's table in a cell: it is redrawn as states, lines and time change."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from ciao_kernel.display.columns import columns
from ciao_kernel.display.html_table import Links, table_html
from ciao_kernel.display.publisher import Publisher
from ciao_kernel.display.redraw_pause import busy_pause, quiet_pause
from ciao_kernel.display.table import Table
from ciao_kernel.visible_text import counted

_TICK = 0.25


class TableOutput:
    """One output of a cell, which is replaced.

    Args:
        table: Content of the table.
        publisher: Sends the output.
        links: Links to files of the job; None if the page has no server that opens them.
        rate: Maximum number of bytes per second.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        table: Table,
        publisher: Publisher,
        links: Links | None,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.table = table
        self._clock = clock
        self._publisher, self._links, self._rate = publisher, links, rate
        self.display_id = f"ciao-{secrets.token_hex(8)}"
        """ID of the output."""
        self.dirty = False
        """Whether something has come since it was drawn."""
        self.urgent = False
        """Whether that is more than lines: the table is drawn soon, however old the job is."""
        self._drawn = 0.0
        self._pause = _TICK

    def draw(self, *, update: bool) -> int:
        """Draw the table; return the number of bytes sent."""
        text = _text(self.table) if update else _first_text(self.table)
        data = {"text/plain": text, "text/html": table_html(self.table, self._links)}
        size = sum(map(len, data.values()))
        self._pause = max(_TICK, size / self._rate)
        self._publisher.display(data, self.display_id, update=update)
        self.dirty = self.urgent = False
        self._drawn = self._clock()
        return size

    def draw_if_due(self) -> int:
        """Draw the changes, from time to time; return the number of bytes sent."""
        age, changing = self.table.age(), self.table.is_changing()
        stale = self.dirty or changing or self.table.elapsed() is not None
        pause = self._pause
        if not self.dirty:
            pause = max(pause, quiet_pause(age, changing=changing))
        elif not self.urgent:
            pause = max(pause, busy_pause(self.table.watched()))
        if stale and self._clock() - self._drawn >= pause:
            return self.draw(update=True)
        return 0


def _text(table: Table) -> str:
    rows = columns(table.grid())
    places = (f"{name}: {place}" for name, place in table.places())
    return "\n".join((table.title(), *table.summary_lines(), rows, *places))


def _first_text(table: Table) -> str:
    """Return a text that stays true if output is never updated, as in `jupyter console`."""
    job, of = table.job, counted(len(table.job.replicas), "replica")
    return f"{job.name}: a job of {of}. `%ciao describe {job.reference}` shows its status."
