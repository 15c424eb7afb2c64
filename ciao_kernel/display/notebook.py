"""Renderer for Jupyter: a live table that stays, curves on request, and lines below.

It sends through a publisher, so that both the kernel and the IPython extension can use it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable

from ciao_kernel.config import Settings
from ciao_kernel.display import board_view, flame
from ciao_kernel.display.html_table import Links
from ciao_kernel.display.plot_output import PlotOutput
from ciao_kernel.display.plotting import plot_of
from ciao_kernel.display.progress_bars import NotebookBars
from ciao_kernel.display.publisher import Publisher
from ciao_kernel.display.shown_lines import ShownLines
from ciao_kernel.display.table import Table
from ciao_kernel.display.table_output import TableOutput
from ciao_kernel.errors import JobFailed
from ciao_kernel.magics.directives import usage_columns
from ciao_kernel.model import (
    Event,
    Job,
    Notice,
    Output,
    Profile,
    Progress,
    State,
    Status,
    TensorBoard,
)
from ciao_kernel.model.usage import UsageReport
from ciao_kernel.visible_text import visible_lines

_log = logging.getLogger(__name__)

_TICK = 0.1
"""Seconds between two stream messages: under load, Jupyter drops messages, not bytes."""
_REDRAWN = 60_000
"""Maximum bytes per second of the table, and of the plot: a table of 64 rows is drawn rarely."""
_SHARE = 1 / 4
"""Maximum share of the output rate for the table, and for the plot; the lines get the rest."""


class NotebookDisplay:
    """Shows a job in a cell.

    Args:
        publisher: Sends the output.
        settings: Rates, limits and colour.
        links: Links to files of the job; None if the page has no server that opens them.
    """

    def __init__(
        self, publisher: Publisher, settings: Settings, links: Links | None = None
    ) -> None:
        self._publisher = publisher
        self._bars = NotebookBars(publisher)
        self._links = links
        self._settings = settings
        self._redraw_rate = min(_REDRAWN, settings.output_rate * _SHARE)
        self._follow: tuple[str, ...] = ()
        self._table: Table | None = None
        self._table_output: TableOutput | None = None
        """Output with the table, also after the end: a stop reports the job's final status then."""
        self._lines = ShownLines(publisher, settings, self._redraw_rate)
        self._fault: Exception | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._plot_output: PlotOutput | None = None
        self._released = False
        self._concluded = False
        self._board = ""
        """Output with TensorBoard, which gets its frame there."""

    def begin(self, job: Job, follow: tuple[str, ...]) -> None:
        """Show the table and start the timer that sends batches."""
        usage = usage_columns.has_usage_columns(job.header, self._settings.usage)
        self._table, self._follow = Table(job, usage=usage), follow
        self._lines.begin(self._table)
        self._table_output = TableOutput(
            self._table, self._publisher, self._links, self._redraw_rate
        )
        self._draw(update=False)
        self._plot_output = None
        self._released = self._concluded = False
        if (plot := plot_of(job)) is not None:
            name = f"{self._table_output.display_id}-plot"
            self._plot_output = PlotOutput(plot, self._publisher, name, self._redraw_rate)
            self._plot_output.begin()
        self._ticker = asyncio.get_running_loop().create_task(self._tick())

    def show(self, event: Event) -> None:
        """Show an event; the first line after a pause is sent at once."""
        if isinstance(event, Notice):
            self._show_notice(event)
            return
        if isinstance(event, Progress):
            self._safely(lambda: self._lines.charge(self._bars.show(event)))
            return
        if isinstance(event, Profile):
            data = {"text/plain": flame.text(event), "text/html": flame.html(event)}
            self._publisher.display(data, f"ciao-{secrets.token_hex(8)}", update=False)
            return
        if isinstance(event, TensorBoard):
            self._show_board(event)
            return
        if self._table is None:
            if self._table_output is not None and isinstance(event, Status):
                self._table_output.table.status = event
                self._safely(lambda: self._draw(update=True))
            return
        assert self._table_output is not None
        self._table_output.dirty = True
        if isinstance(event, Output):
            table = self._table
            self._safely(lambda: table.output(event))
            if self._shown(event):
                if (picture := self._plot_output) is not None:
                    self._safely(lambda: picture.plot.output(event))
                self._lines.add(event, held=not self._concluded)
                if time.monotonic() - self._lines.sent > _TICK:
                    self._safely(self._lines.send)
        elif isinstance(event, UsageReport):
            self._table.note_usage(event)
        elif isinstance(event, Status):
            self._show_status(event, self._table_output)

    def _show_notice(self, event: Notice) -> None:
        # Earlier lines come first.
        self._lines.let_go()
        if event.step:
            self._safely(self._lines.send)
            self._safely(lambda: self._lines.charge(self._bars.begin(event)))
            return
        self._lines.say(f"{visible_lines(event.text)}\n")
        if self._table is None:
            self._lines.send()  # No end() follows that could report a fault.
        else:
            self._safely(self._lines.send)

    def _show_board(self, event: TensorBoard) -> None:
        data = {"text/plain": board_view.text(event), "text/html": board_view.html(event)}
        place, self._board = self._board, ""
        update = bool(place)
        place = place or f"ciao-{secrets.token_hex(8)}"
        self._publisher.display(data, place, update=update)
        self._board = place if event.loads else ""

    def _show_status(self, event: Status, output: TableOutput) -> None:
        before, output.table.status = output.table.status, event
        ends = event.state.over and not (before and before.state.over)
        if event.state is State.RUNNING and before and before.state is not State.RUNNING:
            output.table.watch_anew()
        if _states(event) != _states(before):
            output.urgent = True
            self._lines.hurry()
        if (event.decided or event.state is State.STOPPED) and not self._released:
            # The cell may end now, and some front ends take no text after its end.
            self._released = True
            if event.state is State.STOPPED:  # the cell has no error that repeats anything
                self._lines.let_go()
            self._safely(self._lines.send_held)
        if ends:  # The page may be saved before the next draw.
            self._safely(lambda: self._draw(update=True))

    def conclude(self, error: JobFailed) -> bool:
        """Show all lines and curves so far; lines that the error repeats are one line."""
        if self._table is not None:
            self._table.note_exceptions(error.exceptions)
            self._lines.let_go(error.repeats)
            self._concluded = True  # what comes now is behind the error
            self._safely(self._lines.finish)
            self._safely(lambda: self._draw(update=True))
            self._safely(self._conclude_plot)
            self._safely(self._lines.send_held)
        return False

    def _conclude_plot(self) -> None:
        """Show the curves and their last lines: some front ends take nothing behind an error."""
        if (picture := self._plot_output) is not None:
            self._lines.say(picture.closing_text())
            self._lines.charge(picture.draw())

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
        lines = self._lines
        lines.let_go()
        lines.finish()
        self._table = None
        lines.say(self._closing_text(name))
        picture, self._plot_output = self._plot_output, None
        if picture is not None:
            lines.say(picture.closing_text())
        lines.send()
        self._safely(lines.clear_live)
        if picture is not None:
            try:
                await picture.keep()
            except Exception as fault:
                _log.exception("the curves of %s could not be drawn", name)
                self._publisher.stream(f"The curves could not be drawn: {fault!r}\n")

    def _closing_text(self, job: str) -> str:
        fault, self._fault = self._fault, None
        words = self._lines.count_text()
        if fault:
            words += (
                f"ciao could not keep this output up to date while {job} ran: "
                f"{type(fault).__name__}: {fault}\n"
            )
        return words

    async def _tick(self) -> None:
        while True:
            # show() also sends, between ticks: two messages are at least one tick apart.
            await asyncio.sleep(max(_TICK / 10, self._lines.sent + _TICK - time.monotonic()))
            if time.monotonic() - self._lines.sent >= _TICK:
                self._safely(self._lines.send)
            self._safely(self._lines.add_due)
            self._safely(self._draw_if_due)
            self._safely(self._lines.draw_live)
            if self._plot_output is not None:
                self._safely(self._draw_plot)

    def _safely(self, step: Callable[[], None]) -> None:
        """Run a step of the display; a plot that cannot be drawn must not end a training."""
        try:
            step()
        except Exception as fault:
            if self._fault is None:  # the next ones have the same cause, ten times a second
                _log.exception("a step of the display failed")
            self._fault = self._fault or fault

    def _draw_if_due(self) -> None:
        assert self._table_output is not None
        self._lines.charge(self._table_output.draw_if_due())

    def _draw(self, *, update: bool) -> None:
        assert self._table_output is not None
        self._lines.charge(self._table_output.draw(update=update))

    def _draw_plot(self) -> None:
        assert self._plot_output is not None
        assert self._table is not None
        self._lines.charge(self._plot_output.draw_if_due(self._table.watched()))

    def _shown(self, event: Output) -> bool:
        return event.replica.chosen(self._follow)


def _states(status: Status | None) -> object:
    """Return what a reader waits for; the rest of a status may come with the next lines."""
    if status is None:
        return None
    replicas = [(one.replica, one.state, one.restarts) for one in status.replicas]
    return status.state, status.tries, replicas
