"""The live table as HTML. Everything that comes from a job is escaped.

Nothing moves while a job runs: each column has a fixed width, each row has one height, and a text
that is too long is cut with an ellipsis; its tooltip has all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Protocol

from ciao_kernel.display.table import Row, Table
from ciao_kernel.display.table_columns import COLUMNS, LONGEST_NAME, Column
from ciao_kernel.display.training_text import BAR
from ciao_kernel.model import Job, State, Status
from ciao_kernel.model.replica_colors import color_of

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
_NEUTRAL = "color-mix(in srgb, currentColor 75%, transparent)"
_STEPS = dict(
    zip("bc", sorted({one.hides_at for one in COLUMNS if one.hides_at}, reverse=True), strict=True)
)
"""The variables with the minimum widths of a table whose cell is narrow, and the widths of a cell,
in em, up to which they count. Columns go in two steps: the last line keeps some room."""


def _cells_of(column: Column) -> str:
    """Return the selector of a column's cells, which have no class: that would need more bytes.

    Not each table has the columns of clusters and of %usage. So a column is counted from the end,
    and those of clusters, whose tables have a class, from the start.
    """
    place = COLUMNS.index(column)
    if column.cluster_only:
        return f".ciao-nodes tr>:nth-child({place + 1})"
    return f".ciao tr>:nth-last-child({len(COLUMNS) - place})"


def _narrow_rules() -> Iterator[str]:
    for name, width in _STEPS.items():
        hidden = sorted(
            (one for one in COLUMNS if one.hides_at == width), key=lambda one: one.cluster_only
        )
        selectors = [*map(_cells_of, hidden)]
        if width == min(_STEPS.values()):
            # Without the bar the title has room for the time that is left.
            selectors.append(".ciao>b>span")
        yield (
            f"@container(max-width:{width}em){{{','.join(selectors)}{{display:none}}"
            f".ciao>table{{min-width:var(--{name})}}}}"
        )


# A style sheet, since styles in each cell would double the size of each redraw. Front ends that
# remove it, as for a notebook that is not trusted, show a plain table.
# The repeated class outranks the rules of the page.
_STYLE = (
    "<style>.ciao{overflow-x:auto;container-type:inline-size}"
    ".ciao>*,.ciao.ciao.ciao :is(th,td,td>code)"
    "{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}"
    ".ciao>*{display:block}"
    ".ciao>div>code{user-select:all}"
    ".ciao>table{display:table;table-layout:fixed;width:100%;min-width:var(--a)}"
    ".ciao.ciao.ciao :is(th,td){height:1.6em;line-height:1.6em;padding:.25em .5em;text-align:left}"
    ".ciao.ciao.ciao td>code{display:block;line-height:inherit;padding:0;background:none}"
    ".ciao td>i{display:inline-block;width:.6em;height:.6em;margin-right:.4em}"
    # The width of the cell counts, which a list of files beside it changes, and not that of the
    # page. Browsers without container queries (before 2023) keep all columns, and scroll the table.
    f"{''.join(_narrow_rules())}"
    "</style>"
)
_WIDTHS = {column.heading: column.width for column in COLUMNS if column.width is not None}
"""Fixed widths in digits. Those of names depend on the job; the last line gets the rest."""
_STATE_FITS = 20
"""Letters of a state that its column shows: ``Failed (exit code 1)``."""
_LAST_LINE = 12
"""Minimum width of the last line; a narrower cell scrolls the table."""
_PADDING = 2
"""Digits that fit in the padding of a column, which is one em."""
_SURE_TO_FIT = 9
"""A text up to this length is never cut, so it needs no tooltip."""


class Links(Protocol):
    """Links to files and folders, for pages that can open them."""

    def file(self, path: str) -> str:
        """Return a link to a file, or "" if the page cannot open it."""

    def directory(self, path: str) -> str:
        """Return a link to a folder, or "" if the page cannot open it."""


def job_html(job: Job, status: Status) -> str:
    """Return the table of a job at one moment, for objects that Jupyter shows."""
    table = Table(job)
    table.status = status
    return table_html(table)


def table_html(table: Table, links: Links | None = None) -> str:
    """Return the table, with the line of the job above it and the job's locations below it.

    Args:
        table: The content.
        links: Links to log files and folders; None if the page has no server that opens them.
    """
    state = table.status.state if table.status else State.PENDING
    headings = table.headings(fixed=True)
    rows = table.rows()
    widths = _widths(headings, rows)
    heads = "".join(
        f'<th style="width:{widths[heading]}ch">{heading}</th>'
        if heading in widths
        else f"<th>{heading}</th>"
        for heading in headings
    )
    least = ";".join(
        f"--{name}:{_least(widths, without)}"
        for name, without in (("a", ()), *((name, _hidden(at)) for name, at in _STEPS.items()))
    )
    nodes = ' class="ciao-nodes"' if "node" in headings else ""
    body = "".join(_row(row, headings, links) for row in rows)
    places = "".join(
        f'<div title="{escape(place)}">{escape(name)}: <code>'
        f"{_link(place, links.directory(place) if links else '', new_tab=True)}</code></div>"
        for name, place in table.places()
    )
    title = escape(table.title())
    words = BAR.sub(r"<span>\g<0></span>", title)
    summary = "".join(f"<div>{escape(line)}</div>" for line in table.summary_lines())
    return (
        f'{_STYLE}<div class="ciao">'
        f'<b style="color:{_STATE_COLORS.get(state, "inherit")}" title="{title}">'
        f"{words}</b>"
        f'{summary}<table{nodes} style="{least}"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
        f"{places}</div>"
    )


def _widths(headings: Sequence[str], rows: Sequence[Row]) -> dict[str, int]:
    """Return the fixed widths, which depend on nothing that changes while the job runs."""
    longest = min(LONGEST_NAME, max((len(row.replica) for row in rows), default=0))
    # Letters are narrower than digits. The name of a log file is the replica's, with `.log`.
    widths = {**_WIDTHS, "replica": longest + 2, "log": longest + 3}
    return {heading: widths[heading] for heading in headings if heading in widths}


def _hidden(width: int) -> Sequence[str]:
    """Return the headings that a cell of a width, in em, has no room for."""
    return [column.heading for column in COLUMNS if column.hides_at >= width]


def _least(widths: Mapping[str, int], without: Sequence[str]) -> str:
    """Return the minimum width of a table without some columns."""
    shown = [width for heading, width in widths.items() if heading not in without]
    return f"{sum(shown) + _LAST_LINE + (len(shown) + 1) * _PADDING}ch"


def _row(row: Row, headings: Sequence[str], links: Links | None) -> str:
    if row.who is None:  # the sums have the room of the empty cells behind them
        text = escape(row.detail)
        sums = f'<td style="overflow:visible" title="{text}"><span>{text}</span></td>'
        return f"<tr><td>{escape(row.replica)}</td>{sums}{'<td></td>' * (len(headings) - 2)}</tr>"
    cells = "".join(
        _CELLS.get(heading, _plain_cell)(text, row, links)
        for heading, text in zip(headings, row.cells(headings), strict=True)
    )
    return f"<tr>{cells}</tr>"


def _replica_cell(text: str, row: Row, _: Links | None) -> str:
    assert row.who is not None
    mark = f'<i style="background:{color_of(row.who).html}"></i>'
    return f"<td{_tooltip(text, LONGEST_NAME)}>{mark}{escape(text)}</td>"


def _state_cell(text: str, row: Row, _: Links | None) -> str:
    color = _NEUTRAL if row.expected else _STATE_COLORS.get(row.state, "inherit")
    tooltip = _tooltip(text, _SURE_TO_FIT)
    return f'<td{tooltip}><span style="color:{color}">{escape(text)}</span></td>'


def _time_cell(text: str, row: Row, _: Links | None) -> str:
    return f"<td{_tooltip(row.moment)}>{escape(text)}</td>"


def _log_cell(text: str, _: Row, links: Links | None) -> str:
    target = links.file(text) if links else ""
    return f"<td{_tooltip(text)}>{_link(text.rsplit('/', 1)[-1], target)}</td>"


def _last_line_cell(_: str, row: Row, __: Links | None) -> str:
    shown = row.last_text(_STATE_FITS)
    full = row.full_line or shown
    return f"<td{_tooltip(full, _SURE_TO_FIT)}><code>{escape(shown)}</code></td>"


def _plain_cell(text: str, _: Row, __: Links | None) -> str:
    return f"<td{_tooltip(text, _SURE_TO_FIT)}>{escape(text)}</td>"


_CELLS: dict[str, Callable[[str, Row, Links | None], str]] = {
    "replica": _replica_cell,
    "state": _state_cell,
    "time": _time_cell,
    "log": _log_cell,
    "last line": _last_line_cell,
}
"""How the cells of some columns are drawn; those of the others are plain texts."""


def _link(text: str, target: str, *, new_tab: bool = False) -> str:
    if not target:
        return escape(text)
    tab = ' target="_blank" rel="noopener"' if new_tab else ""
    return f'<a href="{escape(target)}"{tab}>{escape(text)}</a>'


def _tooltip(text: str, fits: int = 0) -> str:
    """Return the attribute for a text that may be cut: one longer than ``fits``."""
    return f' title="{escape(text)}"' if len(text) > fits else ""
