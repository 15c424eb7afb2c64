"""The renderer for Jupyter: a live table that stays, and the replicas' lines below it.

The only module that makes HTML. It sends through a :class:`Publisher`, so that the kernel and
the IPython extension use it alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from html import escape
from typing import Any, Protocol

from ciao_kernel.config import Settings
from ciao_kernel.display.lines import Batcher, Prefixer
from ciao_kernel.display.table import HEADINGS, Row, Table, columns
from ciao_kernel.model import Event, Job, Notice, Output, State, Status

_TICK = 0.1
"""Seconds between two stream messages: Jupyter drops messages, not bytes, when hurried."""
_TABLE_TICK = 0.25
_TABLE_BYTES = 60_000
"""Bytes a second that the table may cost; a table of 64 rows is drawn once in a while."""


class Publisher(Protocol):
    """What carries output to a cell."""

    def stream(self, text: str) -> None:
        """Append text to the cell's output."""

    def display(self, data: dict[str, str], display_id: str, *, update: bool) -> None:
        """Show a MIME bundle, or replace the one that was shown under this id."""


class NotebookDisplay:
    """Shows a job in a cell.

    Args:
        publisher: Carries the output.
        settings: Rates, limits and colour.
    """

    def __init__(self, publisher: Publisher, settings: Settings) -> None:
        self._publisher = publisher
        self._settings = settings
        self._follow: tuple[str, ...] = ()
        self._table: Table | None = None
        self._batcher = self._new_batcher()
        self._display_id = ""
        self._dirty = False
        self._sent = 0.0
        self._drawn = 0.0
        self._draw_pause = _TABLE_TICK
        self._ticker: asyncio.Task[None] | None = None

    def begin(self, job: Job, follow: tuple[str, ...]) -> None:
        """Show the table and start the clock that sends batches."""
        self._table, self._follow = Table(job), follow
        self._batcher = self._new_batcher()
        self._display_id = f"ciao-{secrets.token_hex(8)}"
        self._draw(update=False)
        self._ticker = asyncio.get_running_loop().create_task(self._tick())

    def show(self, event: Event) -> None:
        """Take an event; the first line after a pause is sent at once."""
        if isinstance(event, Notice):
            self._send()
            self._publisher.stream(f"{event.text}\n")
            return
        if self._table is None:
            return
        self._dirty = True
        if isinstance(event, Output):
            self._table.output(event)
            if self._shown(event):
                self._batcher.add(event)
                if time.monotonic() - self._sent > _TICK:
                    self._send()
        elif isinstance(event, Status):
            self._table.status = event

    async def end(self) -> None:
        """Send what is left and draw the table as it will stay."""
        if self._ticker is not None:
            self._ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticker
            self._ticker = None
        if self._table is None:
            return
        self._send()
        left_out = sum(count.left_out for count in self._batcher.counts.values())
        if left_out:
            lines = sum(count.lines for count in self._batcher.counts.values())
            self._publisher.stream(
                f"{lines - left_out:,} of {lines:,} lines are shown; all are in the log files.\n"
            )
        self._draw(update=True)
        self._table = None

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self._send()
            now = time.monotonic()
            assert self._table is not None
            stale = self._dirty or self._table.moving()
            pause = self._draw_pause if self._dirty else 1.0
            if stale and now - self._drawn >= pause:
                self._draw(update=True)

    def _send(self) -> None:
        self._sent = time.monotonic()
        if self._batcher and (text := self._batcher.take()):
            self._publisher.stream(text)

    def _draw(self, *, update: bool) -> None:
        assert self._table is not None
        title, rows = self._table.title(), self._table.rows()
        state = self._table.status.state if self._table.status else State.PENDING
        data = {
            "text/plain": _text(title, rows, self._table.job.place),
            "text/html": _html(title, state, rows, self._table.job.place),
        }
        size = sum(map(len, data.values()))
        self._batcher.charge(size)
        self._draw_pause = max(_TABLE_TICK, size / _TABLE_BYTES)
        self._publisher.display(data, self._display_id, update=update)
        self._dirty, self._drawn = False, time.monotonic()

    def _shown(self, event: Output) -> bool:
        names = (event.replica.role, str(event.replica))
        return not self._follow or any(name in self._follow for name in names)

    def _new_batcher(self) -> Batcher:
        settings = self._settings
        prefixer = Prefixer(color=settings.color != "never", limit=int(settings.line_limit))
        return Batcher(prefixer, rate=settings.output_rate, total=settings.output_limit)


# The colours are JupyterLab's own for its theme, with a fallback that reads on white and black.
_STATE_COLORS = {
    State.SUCCEEDED: "var(--jp-success-color1, #388e3c)",
    State.FAILED: "var(--jp-error-color1, #d32f2f)",
    State.LOST: "var(--jp-error-color1, #d32f2f)",
    State.STOPPED: "var(--jp-warn-color1, #b26a00)",
    State.RUNNING: "var(--jp-info-color1, #1976d2)",
}
_LEFT = 'style="text-align:left"'


def _text(title: str, rows: list[Row], place: str) -> str:
    table = columns([HEADINGS, *(row.cells() for row in rows)])
    return f"{title}\n{table}\nfolder: {place}"


def _html(title: str, state: State, rows: list[Row], place: str) -> str:
    """Draw the table. Everything that comes from a job is escaped."""
    heads = "".join(f"<th {_LEFT}>{escape(heading)}</th>" for heading in HEADINGS)
    body = "".join(_html_row(row) for row in rows)
    color = _STATE_COLORS.get(state, "inherit")
    return (
        f'<div><b style="color:{color}">{escape(title)}</b>'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
        f"<div>folder: <code>{escape(place)}</code></div></div>"
    )


def _html_row(row: Row) -> str:
    color = _STATE_COLORS.get(row.state, "inherit")
    cells: list[Any] = [escape(cell) for cell in row.cells()]
    cells[1] = f'<span style="color:{color}">{cells[1]}</span>'
    cells[3] = f"<code>{cells[3]}</code>" if cells[3] else ""
    name = row.log.rsplit("/", 1)[-1]
    cells[5] = f'<span title="{escape(row.log)}">{escape(name)}</span>'
    return "<tr>" + "".join(f"<td {_LEFT}>{cell}</td>" for cell in cells) + "</tr>"
