"""Renderer for Jupyter: a live table that stays, curves on request, and lines below.

The only module that creates HTML. It sends through a publisher, so that both the kernel and the
IPython extension can use it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from html import escape

from ciao_kernel.config import Settings
from ciao_kernel.display.lines import FIXED_COLORS, Batcher, Prefixer, plain_text
from ciao_kernel.display.plot_output import PlotOutput
from ciao_kernel.display.plotting import plot_of
from ciao_kernel.display.publisher import Publisher
from ciao_kernel.display.table import Row, Table, columns
from ciao_kernel.model import Event, Job, Notice, Output, Replica, State, Status

_log = logging.getLogger(__name__)

_TICK = 0.1
"""Seconds between two stream messages: under load, Jupyter drops messages, not bytes."""
_TABLE_TICK = 0.25
_REDRAWN = 60_000
"""Maximum bytes per second of the table, and of the plot: a table of 64 rows is drawn rarely."""
_SHARE = 1 / 4
"""Maximum share of the output rate for the table, and for the plot; the lines get the rest."""


class NotebookDisplay:
    """Shows a job in a cell.

    Args:
        publisher: Sends the output.
        settings: Rates, limits and colour.
    """

    def __init__(self, publisher: Publisher, settings: Settings) -> None:
        self._publisher = publisher
        self._settings = settings
        self._redraw_rate = min(_REDRAWN, settings.output_rate * _SHARE)
        self._follow: tuple[str, ...] = ()
        self._table: Table | None = None
        self._ended: Table | None = None
        self._batcher = self._new_batcher(())
        self._display_id = ""
        self._dirty = False
        self._unsent = ""
        self._fault: Exception | None = None
        self._sent = 0.0
        self._drawn = 0.0
        self._draw_pause = _TABLE_TICK
        self._ticker: asyncio.Task[None] | None = None
        self._picture: PlotOutput | None = None

    def begin(self, job: Job, follow: tuple[str, ...]) -> None:
        """Show the table and start the timer that sends batches."""
        self._table, self._ended, self._follow = Table(job), None, follow
        self._batcher = self._new_batcher(job.replicas)
        self._display_id = f"ciao-{secrets.token_hex(8)}"
        self._draw(update=False)
        self._picture = None
        if (plot := plot_of(job)) is not None:
            name = f"{self._display_id}-plot"
            self._picture = PlotOutput(plot, self._publisher, name, self._redraw_rate)
            self._picture.begin()
        self._ticker = asyncio.get_running_loop().create_task(self._tick())

    def show(self, event: Event) -> None:
        """Show an event; the first line after a pause is sent at once."""
        if isinstance(event, Notice):
            # Earlier lines come first.
            self._unsent += self._batcher.take() + f"{plain_text(event.text)}\n"
            if self._table is None:
                self._send()  # No end() follows that could report a fault.
            else:
                self._safely(self._send)
            return
        if self._table is None:
            if self._ended is not None and isinstance(event, Status):
                # A stop first ends following, and later reports the final status of the job.
                self._ended.status = event
                self._safely(lambda: self._draw(update=True))
            return
        self._dirty = True
        if isinstance(event, Output):
            self._table.output(event)
            if self._shown(event):
                if (picture := self._picture) is not None:
                    self._safely(lambda: picture.plot.output(event))
                self._batcher.add(event)
                if time.monotonic() - self._sent > _TICK:
                    self._safely(self._send)
        elif isinstance(event, Status):
            ends = event.state.over and not (self._table.status and self._table.status.state.over)
            self._table.status = event
            if ends:  # The page may be saved before the next draw.
                self._safely(lambda: self._draw(update=True))

    async def end(self) -> None:
        """Send the remaining lines and draw the final table."""
        if self._ticker is not None:
            # The ticker is not awaited: it only waits for the clock, and an interrupt that arrives
            # here must not be mistaken for the ticker's own end.
            self._ticker.cancel()
            self._ticker = None
        if self._table is None:
            return
        self._safely(lambda: self._draw(update=True))
        name = self._table.job.name
        self._table, self._ended = None, self._table
        self._unsent += self._batcher.take(last=True) + self._closing_text(name)
        picture, self._picture = self._picture, None
        if picture is not None:
            self._unsent += picture.closing_text()
        self._send()
        if picture is not None:
            try:
                await picture.keep()
            except Exception as fault:
                _log.exception("the curves of %s could not be drawn", name)
                self._publisher.stream(f"The curves could not be drawn: {fault!r}\n")

    def _closing_text(self, job: str) -> str:
        counts = self._batcher.counts.values()
        lines = sum(count.lines for count in counts)
        left_out = sum(count.left_out for count in counts)
        fault, self._fault = self._fault, None
        words = ""
        if left_out:
            shown = lines - left_out
            words += f"{shown:,} of {lines:,} lines are shown; all are in the log files.\n"
        if fault:
            words += (
                f"ciao could not keep this output up to date while {job} ran: "
                f"{type(fault).__name__}: {fault}\n"
            )
        return words

    async def _tick(self) -> None:
        while True:
            # show() also sends, between ticks: two messages are at least one tick apart.
            await asyncio.sleep(max(_TICK / 10, self._sent + _TICK - time.monotonic()))
            if time.monotonic() - self._sent >= _TICK:
                self._safely(self._send)
            self._safely(self._draw_if_due)
            if self._picture is not None:
                self._safely(self._draw_picture)

    def _safely(self, step: Callable[[], None]) -> None:
        """Run a step of the display; a plot that cannot be drawn must not end a training."""
        try:
            step()
        except Exception as fault:
            if self._fault is None:  # the next ones have the same cause, ten times a second
                _log.exception("a step of the display failed")
            self._fault = self._fault or fault

    def _draw_if_due(self) -> None:
        assert self._table is not None
        stale = self._dirty or self._table.is_changing()
        pause = self._draw_pause if self._dirty else max(self._draw_pause, 1.0)
        if stale and time.monotonic() - self._drawn >= pause:
            self._draw(update=True)

    def _send(self) -> None:
        self._unsent += self._batcher.take()
        if self._unsent:
            # Kept until it is sent: text that fails now is sent with the next message.
            self._publisher.stream(self._unsent)
            self._unsent, self._sent = "", time.monotonic()

    def _draw(self, *, update: bool) -> None:
        table = self._table or self._ended
        assert table is not None
        text = _text(table) if update else _first_text(table)
        data = {"text/plain": text, "text/html": _html(table)}
        size = sum(map(len, data.values()))
        self._batcher.charge(size)
        self._draw_pause = max(_TABLE_TICK, size / self._redraw_rate)
        self._publisher.display(data, self._display_id, update=update)
        self._dirty, self._drawn = False, time.monotonic()

    def _draw_picture(self) -> None:
        assert self._picture is not None
        self._batcher.charge(self._picture.draw_if_due())

    def _shown(self, event: Output) -> bool:
        return event.replica.chosen(self._follow)

    def _new_batcher(self, replicas: tuple[Replica, ...]) -> Batcher:
        settings = self._settings
        prefixer = Prefixer(
            color=settings.color != "never",
            limit=int(settings.line_limit),
            replicas=replicas,
            colors=FIXED_COLORS,
        )
        return Batcher(prefixer, rate=settings.output_rate, total=settings.output_limit)


# JupyterLab's theme colours, mixed with the text colour: JupyterLab's orange alone has a contrast
# of 2.7 on white. A front end that cannot mix colours keeps the text colour.
_STATE_COLORS = {
    state: f"color-mix(in srgb, {color} 70%, currentColor)"
    for state, color in {
        State.SUCCEEDED: "var(--jp-success-color1, #388e3c)",
        State.FAILED: "var(--jp-error-color1, #d32f2f)",
        State.LOST: "var(--jp-error-color1, #d32f2f)",
        State.STOPPED: "var(--jp-warn-color1, #b26a00)",
        State.RUNNING: "var(--jp-info-color1, #1976d2)",
    }.items()
}
_LEFT = 'style="text-align:left"'


def _text(table: Table) -> str:
    rows = columns(table.grid())
    places = (f"{name}: {place}" for name, place in table.places())
    return "\n".join((table.title(), rows, *places))


def _first_text(table: Table) -> str:
    """Return a text that stays true if output is never updated, as in `jupyter console`."""
    job, count = table.job, len(table.job.replicas)
    of = "1 replica" if count == 1 else f"{count} replicas"
    return f"{job.name}: a job of {of}. `%ciao describe {job.reference}` shows its status."


def _html(table: Table) -> str:
    """Return the table as HTML. Everything that comes from a job is escaped."""
    state = table.status.state if table.status else State.PENDING
    headings = table.headings()
    heads = "".join(f"<th {_LEFT}>{escape(heading)}</th>" for heading in headings)
    body = "".join(_html_row(row, headings) for row in table.rows())
    places = "".join(
        f"<div>{escape(name)}: <code>{escape(place)}</code></div>" for name, place in table.places()
    )
    color = _STATE_COLORS.get(state, "inherit")
    return (
        f'<div><b style="color:{color}">{escape(table.title())}</b>'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
        f"{places}</div>"
    )


def _html_row(row: Row, headings: Sequence[str]) -> str:
    cells = zip(headings, row.cells(headings), strict=True)
    drawn = (_html_cell(heading, text, row) for heading, text in cells)
    return "<tr>" + "".join(f"<td {_LEFT}>{cell}</td>" for cell in drawn) + "</tr>"


def _html_cell(heading: str, text: str, row: Row) -> str:
    if heading == "state":
        return (
            f'<span style="color:{_STATE_COLORS.get(row.state, "inherit")}">{escape(text)}</span>'
        )
    if heading == "log":
        return f'<span title="{escape(text)}">{escape(text.rsplit("/", 1)[-1])}</span>'
    if heading == "last line" and text:
        return f"<code>{escape(text)}</code>"
    return escape(text)
