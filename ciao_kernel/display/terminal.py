"""The renderer for terminals and pipes.

In a terminal: coloured lines above a live table. In a pipe: plain lines, and the table once
at the end on standard error, so that the lines alone can be piped on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, TextIO

from ciao_kernel.config import Settings
from ciao_kernel.display.errors import colored
from ciao_kernel.display.lines import Prefixer
from ciao_kernel.display.table import HEADINGS, Table, columns
from ciao_kernel.errors import CiaoError, describe
from ciao_kernel.model import Event, Job, Notice, Output, State, Status

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table as RichTable

_TICK = 0.25
_STYLES = {
    State.SUCCEEDED: "green",
    State.FAILED: "red",
    State.LOST: "red",
    State.STOPPED: "yellow",
    State.RUNNING: "blue",
}


def uses_color(settings: Settings, stream: TextIO) -> bool:
    """Whether to colour: the setting, else NO_COLOR (no-color.org), else a terminal."""
    if settings.color != "auto":
        return settings.color == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR")


def show_error(error: CiaoError, settings: Settings) -> None:
    """Write an error to standard error."""
    lines = colored(error) if uses_color(settings, sys.stderr) else describe(error)
    print("\n".join(lines), file=sys.stderr, flush=True)


class TerminalDisplay:
    """Shows a job in a terminal or a pipe.

    Args:
        settings: Colour.
        stream: Where lines go.
    """

    def __init__(self, settings: Settings, stream: TextIO) -> None:
        self._stream = stream
        self._color = uses_color(settings, stream)
        self._prefixer = Prefixer(color=self._color, limit=10**9)
        self._follow: tuple[str, ...] = ()
        self._table: Table | None = None
        self._live: Live | None = None
        self._ticker: asyncio.Task[None] | None = None

    def begin(self, job: Job, follow: tuple[str, ...]) -> None:
        """Open the live table where there is a terminal."""
        self._table, self._follow = Table(job), follow
        if self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, highlight=False, no_color=not self._color)
            self._live = Live(console=console, auto_refresh=False, redirect_stdout=False)
            self._live.start()
            self._ticker = asyncio.get_running_loop().create_task(self._tick())

    def show(self, event: Event) -> None:
        """Write lines at once; note states for the table."""
        if isinstance(event, Notice):
            self._print(f"{event.text}\n")
        elif self._table is None:
            return
        elif isinstance(event, Output):
            self._table.output(event)
            names = (event.replica.role, str(event.replica))
            if event.data and (not self._follow or any(n in self._follow for n in names)):
                self._print(self._prefixer.format(event.replica, event.data))
        elif isinstance(event, Status):
            self._table.status = event

    async def end(self) -> None:
        """Leave the last table standing."""
        if self._ticker is not None:
            self._ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticker
            self._ticker = None
        if self._table is None:
            return
        if self._live is not None:
            self._live.update(_rich(self._table), refresh=True)
            self._live.stop()
            self._live = None
        else:
            rows = [HEADINGS, *(row.cells() for row in self._table.rows())]
            text = f"{self._table.title()}\n{columns(rows)}\nfolder: {self._table.job.place}"
            print(text, file=sys.stderr, flush=True)
        self._table = None

    def _print(self, text: str) -> None:
        if self._live is not None:
            from rich.text import Text

            self._live.console.print(Text.from_ansi(text.removesuffix("\n")), soft_wrap=True)
        else:
            self._stream.write(text)
            self._stream.flush()

    async def _tick(self) -> None:
        while self._live is not None and self._table is not None:
            self._live.update(_rich(self._table), refresh=True)
            started = time.monotonic()
            await asyncio.sleep(max(_TICK, 4 * (time.monotonic() - started)))


def _rich(table: Table) -> RichTable:
    from rich.table import Table as RichTable
    from rich.text import Text

    state = table.status.state if table.status else State.PENDING
    drawn = RichTable(
        title=Text(table.title(), style=_STYLES.get(state, "")),
        caption=Text(f"folder: {table.job.place}"),
        title_justify="left",
        caption_justify="left",
        box=None,
        pad_edge=False,
    )
    for heading in HEADINGS[:-1]:
        drawn.add_column(heading, no_wrap=True, overflow="ellipsis")
    for row in table.rows():
        cells = [Text(cell) for cell in row.cells()[:-1]]
        cells[1].stylize(_STYLES.get(row.state, ""))
        drawn.add_row(*cells)
    return drawn
