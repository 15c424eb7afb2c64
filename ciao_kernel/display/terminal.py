"""Renderer for terminals and pipes.

In a terminal: coloured lines above a live table. In a pipe: only plain lines on standard output,
so that they can be piped on; notices, and the table once at the end, on standard error.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from ciao_kernel.config import Settings
from ciao_kernel.display import progress_text
from ciao_kernel.display.columns import columns
from ciao_kernel.display.errors import colored, for_terminal, uncolored
from ciao_kernel.display.excerpt import Excerpt, left_out_text
from ciao_kernel.display.held_reports import HeldReports
from ciao_kernel.display.lines import NO_LIMIT, Prefixer
from ciao_kernel.display.plotting import Plot, plot_of
from ciao_kernel.display.progress_bars import TerminalBar
from ciao_kernel.display.screen import Screen
from ciao_kernel.display.table import Table
from ciao_kernel.display.window_table import drawing
from ciao_kernel.errors import CiaoError, JobFailed
from ciao_kernel.magics.directives import usage_columns
from ciao_kernel.model import (
    ALL_LINES,
    Event,
    Job,
    Notice,
    Output,
    Profile,
    Progress,
    Status,
    TensorBoard,
)
from ciao_kernel.model.usage import UsageReport
from ciao_kernel.visible_text import visible_lines

if TYPE_CHECKING:
    from rich.live import Live

_TICK = 0.1
"""Seconds between two writes to a terminal: each write redraws the table below the lines."""
_TABLE_TICK = 0.25
_ERROR_ROWS = 4
"""Rows of an error without its traceback: the message, the hint, and the prompt behind it."""


def uses_color(settings: Settings, stream: TextIO) -> bool:
    """Return whether to colour: the setting, else NO_COLOR (no-color.org), else a terminal."""
    if settings.color != "auto":
        return settings.color == "always"
    dull = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not dull


def show_error(error: CiaoError, settings: Settings) -> None:
    """Write an error to standard error, in the words of a terminal."""
    lines = colored(error) if uses_color(settings, sys.stderr) else uncolored(error)
    print("\n".join(lines), file=sys.stderr, flush=True)


class TerminalDisplay:
    """Shows a job in a terminal or a pipe.

    Args:
        settings: Colour, and whether the table shows what replicas use.
        stream: Receives the lines.
    """

    def __init__(self, settings: Settings, stream: TextIO) -> None:
        self._stream = stream
        self._bar = TerminalBar(stream)
        self._color = uses_color(settings, stream)
        self._usage = settings.usage
        self._prefixer = Prefixer(color=self._color, limit=NO_LIMIT)
        self._follow: tuple[str, ...] = ()
        self._table: Table | None = None
        self._plot: Plot | None = None
        self._excerpt = Excerpt(ALL_LINES, 0)
        self._screen = Screen(self._prefixer)
        self._reports = HeldReports()
        self._live: Live | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._pending: list[str] = []
        self._written = 0.0
        self._drawn = 0.0
        self._unread = False

    def begin(self, job: Job, follow: tuple[str, ...]) -> None:
        """Open the live table if the stream is a terminal."""
        usage = usage_columns.has_usage_columns(job.header, self._usage)
        self._table, self._follow = Table(job, usage=usage), follow
        self._plot = plot_of(job)
        self._excerpt = Excerpt(job.lines or ALL_LINES, len(job.replicas))
        self._bar.clear()
        if self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, highlight=False, no_color=not self._color)
            self._live = Live(
                console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
            self._ticker = asyncio.get_running_loop().create_task(self._tick())

    def show(self, event: Event) -> None:
        """Show an event. Lines are written at once, or in a terminal with the next few lines."""
        if isinstance(event, Notice):
            self._notice(event.text)
        elif isinstance(event, Progress):
            self._progress(event)
        elif isinstance(event, Profile):
            from ciao_kernel.display import flame

            self._print(f"{flame.text(event)}\n")
        elif isinstance(event, TensorBoard):
            from ciao_kernel.display import board_view

            self._notice(board_view.text(event))
        elif self._table is None:
            return
        elif isinstance(event, Output):
            self._table.output(event)
            if self._plot is not None and event.replica.chosen(self._follow):
                self._plot.output(event)
            if event.replica.chosen(self._follow) and (first := self._excerpt.add(event)):
                self._print_lines(first)
        elif isinstance(event, Status):
            self._table.status = event
        elif isinstance(event, UsageReport):
            self._table.note_usage(event)

    def conclude(self, error: JobFailed) -> bool:
        """Return whether the window still shows the traceback above the table and the error."""
        table, live = self._table, self._live
        if table is not None:
            table.note_exceptions(error.exceptions)
        replica = next(iter(error.repeats), None)
        # A window shows this stream and the error; a file or a pipe may have only one of them.
        if table is None or live is None or replica is None or not sys.stderr.isatty():
            return False
        if self._excerpt:  # the last lines are not written yet
            return False
        self._print_in_window(self._reports.close())
        below = (
            len(table.grid())
            + 1
            + len(table.summary_lines())
            + len(table.places())
            + len(_lines(self._plot))
            + _ERROR_ROWS
        )
        width, height = live.console.size
        return self._screen.shows(
            replica, error.repeats[replica], width=width, height=height - below
        )

    async def end(self) -> None:
        """Write the final table."""
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.wait({self._ticker})  # not `await`: it would hide our own cancellation
            self._ticker = None
        table, self._table = self._table, None
        plot, self._plot = self._plot, None
        if table is not None and not self._unread:
            self._print_held(table)
        if table is None or self._unread:
            return
        if self._live is not None:
            self._flush()
            width = self._live.console.width
            self._live.update(drawing(table, _lines(plot), width, last=True), refresh=True)
            self.close()
            places = _places(table) + (plot.closing_text() if plot else "")
            self._stream.write(visible_lines(places))
            self._stream.flush()
        else:
            place = f"{table.job.kind_of_place}: {table.job.place}"
            lines = [table.title(), *table.summary_lines(), columns(table.grid()), place]
            lines += [*_lines(plot), *([plot.closing_text()] if plot else [])]
            text = visible_lines("\n".join(lines).rstrip("\n"))
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Restore the terminal's cursor, even after a disorderly end."""
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()

    def _progress(self, event: Progress) -> None:
        """Show a long step: before the table; in a pipe now and then, and its last amount."""
        if self._live is None:
            self._bar.show(event)
        if self._bar.is_due(event):
            self._notice(progress_text.line(event))
        if event.over and not event.failed and event.done:
            self._notice(progress_text.line(event))

    def _notice(self, text: str) -> None:
        text = f"{visible_lines(for_terminal(text))}\n"
        if self._stream.isatty():
            self._screen.text(text)
            self._print(text)
        else:
            print(text, end="", file=sys.stderr, flush=True)

    def _print_lines(self, event: Output) -> None:
        """Print lines of a replica; in a window, one line stands for a report of torchrun."""
        if event.data and self._live is None:
            self._print(self._prefixer.format(event.replica, event.data))
        elif event.data:
            self._print_in_window(self._reports.add(event))

    def _print_in_window(self, outputs: Sequence[Output]) -> None:
        for one in outputs:
            self._screen.output(one)
            self._print(self._prefixer.format(one.replica, one.data))

    def _print_held(self, table: Table) -> None:
        """Print the last lines of a job with %lines, which ends now."""
        left_out, newest = self._excerpt.close()
        if text := left_out_text(table.job, table.status, left_out):
            self._notice(text)
        for event in newest:
            self._print_lines(event)
        self._print_in_window(self._reports.close())

    def _print(self, text: str) -> None:
        if self._live is None:
            self._bar.clear()
            try:
                self._stream.write(text)
                self._stream.flush()
            except BrokenPipeError:
                self._unread = True
                raise
        else:
            self._pending.append(text)
            if time.monotonic() - self._written > _TICK:
                self._flush()

    def _flush(self) -> None:
        """Write the pending lines above the table."""
        if self._pending and self._live is not None:
            from rich.segment import Segment, Segments

            text, self._pending = "".join(self._pending), []
            # Segments are written unchanged: rich would wrap and expand a text.
            self._live.console.print(Segments([Segment(text)]), soft_wrap=True, end="")
            self._written = time.monotonic()

    async def _tick(self) -> None:
        while self._live is not None and self._table is not None:
            started = time.monotonic()
            self._print_in_window(self._reports.due())
            self._flush()
            if started - self._drawn >= _TABLE_TICK:
                width = self._live.console.width
                self._live.update(drawing(self._table, _lines(self._plot), width), refresh=True)
                self._drawn = started
            await asyncio.sleep(max(_TICK, 4 * (time.monotonic() - started)))


def _lines(plot: Plot | None) -> Sequence[str]:
    return plot.lines() if plot else ()


def _places(table: Table) -> str:
    """Return the locations of the job's files and logs, never cut off."""
    return "".join(f"{name + ':':7} {place}\n" for name, place in table.places())
