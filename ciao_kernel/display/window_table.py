"""The table of a job in the window of a terminal, as rich draws it.

Rich would shorten all columns in proportion where they have too little room, also the names. So the
widths are fixed here: a long text gives way to the names and to the last lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ciao_kernel.display.table import Row, Table
from ciao_kernel.display.table_columns import COLUMNS, LONGEST_NAME
from ciao_kernel.model import State
from ciao_kernel.model.replica_colors import color_of
from ciao_kernel.visible_text import visible_lines

if TYPE_CHECKING:
    from rich.console import RenderableType

_NARROW = 72
"""Window width, in characters, below which the table omits the columns of :data:`_WIDE`."""
_WIDE = tuple(column.heading for column in COLUMNS if not column.in_narrow_window)
_LAST = "last line"
_LAST_LINE = 12
"""Width that the last line has at least; columns of :data:`_WIDE` go for it."""
_GAP = 2
_LEAST = 4
"""Width below which the rest of a window shows nothing of a column."""
_STYLES = {
    State.SUCCEEDED: "green",
    State.FAILED: "red",
    State.LOST: "red",
    State.STOPPED: "yellow",
    State.RUNNING: "blue",
}


def drawing(
    table: Table, below: Sequence[str], width: int, *, last: bool = False
) -> RenderableType:
    """Draw the table for a window; the last table omits the places, which follow it uncut."""
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    def line(text: str, style: str = "") -> Text:
        return Text(visible_lines(text), style=style, no_wrap=True, overflow="ellipsis")

    left_out = _WIDE if width < _NARROW else ("log",)  # the whole path is shown below
    shown = [heading for heading in table.headings() if heading not in left_out]
    rows = table.rows()
    widths = _widths(shown, rows, width, last=last)
    drawn = RichTable(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for heading, room in widths.items():
        drawn.add_column(heading, width=room, no_wrap=True, overflow="ellipsis")
    for row in rows:
        texts = _cells(row, widths)
        drawn.add_row(*map(line, texts, (_style(row, heading) for heading in widths)))
    state = table.status.state if table.status else State.PENDING
    title = line(table.title(), _STYLES.get(state, ""))
    place = [] if last else [line(f"{table.job.kind_of_place}: {table.job.place}")]
    return Group(title, *map(line, table.summary_lines()), drawn, *map(line, below), *place)


def _widths(
    headings: Sequence[str], rows: Sequence[Row], width: int, *, last: bool
) -> dict[str, int]:
    """Return the widths of the columns that have room in a window, in cells of a terminal.

    In the last table, states and nodes get what the last lines leave: nothing moves any more.
    """
    full = {
        heading: max(map(_width, (heading, *texts)))
        for heading, *texts in zip(headings, *(row.cells(headings) for row in rows), strict=True)
    }
    longest = {"replica": LONGEST_NAME, "state": max(22, width // 3), "node": max(16, width // 5)}
    widths = {
        heading: min(wanted, longest.get(heading, wanted)) for heading, wanted in full.items()
    }
    widths[_LAST] = _LAST_LINE
    for heading in reversed(_WIDE):
        if sum(widths.values()) + _GAP * (len(widths) - 1) > width:
            widths.pop(heading, None)
    free = width - sum(widths.values()) - _GAP * (len(widths) - 1)
    free -= max(0, full.get(_LAST, 0) - _LAST_LINE)
    for heading in ("state", "node") if last else ():
        more = max(0, min(free, full.get(heading, 0) - widths.get(heading, width)))
        if more:
            widths[heading] += more
            free -= more
    # The last line gets the rest; in a very narrow window, columns before it are cut too.
    left, fitting = width, {}
    for heading, wanted in widths.items():
        room = left if heading == _LAST else min(wanted, left)
        if heading == "replica" or room >= min(wanted, _LEAST):
            fitting[heading] = room
            left -= room + _GAP
    return fitting


def _cells(row: Row, widths: Mapping[str, int]) -> Iterator[str]:
    """Return the texts of a row; a reason that is too long for the state is in the last line."""
    for heading, text in zip(widths, row.cells(widths), strict=True):
        yield row.last_text(widths["state"]) if heading == _LAST else text


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(visible_lines(text))


def _style(row: Row, heading: str) -> str:
    """Return rich's style of a cell: the colour of the replica, or of its state."""
    if heading == "replica" and row.who is not None:
        return f"color({color_of(row.who).code})"
    if heading == "state":
        return "dim" if row.expected else _STYLES.get(row.state, "")
    return ""
