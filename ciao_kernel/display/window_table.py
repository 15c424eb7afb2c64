"""The table of a job in the window of a terminal, as rich draws it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ciao_kernel.display.table import Row, Table
from ciao_kernel.display.table_columns import COLUMNS
from ciao_kernel.model import State
from ciao_kernel.model.replica_colors import color_of
from ciao_kernel.visible_text import visible_lines

if TYPE_CHECKING:
    from rich.console import RenderableType

_NARROW = 72
"""Window width, in characters, below which the table omits the columns of :data:`_WIDE`."""
_WIDE = tuple(column.heading for column in COLUMNS if not column.in_narrow_window)
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
    drawn = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in shown:
        # In a narrow window, only the column that may wrap is shortened.
        drawn.add_column(heading, no_wrap=heading != "last line", overflow="ellipsis")
    for row in table.rows():
        drawn.add_row(*map(line, row.cells(shown), (_style(row, heading) for heading in shown)))
    state = table.status.state if table.status else State.PENDING
    title = line(table.title(), _STYLES.get(state, ""))
    place = [] if last else [line(f"{table.job.kind_of_place}: {table.job.place}")]
    return Group(title, *map(line, table.summary_lines()), drawn, *map(line, below), *place)


def _style(row: Row, heading: str) -> str:
    """Return rich's style of a cell: the colour of the replica, or of its state."""
    if heading == "replica" and row.who is not None:
        return f"color({color_of(row.who).code})"
    if heading == "state":
        return "dim" if row.expected else _STYLES.get(row.state, "")
    return ""
