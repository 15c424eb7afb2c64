"""A cell or a file with the directives in it, found once for all later steps.

The kernel scans each cell to decide whether it is a job, and hands the result down to the parser.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ciao_kernel.magics import body, header, loops
from ciao_kernel.magics.header import Header, Line, Style, Token
from ciao_kernel.magics.table import Table

Scanner = Callable[[str, Table, Style], Header]
"""Signature of :func:`ciao_kernel.magics.header.scan`."""


@dataclass(frozen=True, slots=True)
class ScannedCell:
    """A text and its directives. Errors in them are reported by the parser."""

    text: str
    style: Style
    header: Header
    below: tuple[Token, ...]
    """Directives below the header, as the first ciao allowed them in a cell."""
    behind_blanks: Line | None = None
    """First line with a directive behind blanks, of a cell with no other: an error."""

    @property
    def tokens(self) -> tuple[Token, ...]:
        """Return all directives in the order of their lines."""
        return self.header.tokens + self.below


def scan(
    text: str, table: Table, style: Style = Style.CELL, scan_header: Scanner = header.scan
) -> ScannedCell:
    """Find the directives of a text. Never raises.

    Args:
        text: The cell or file.
        table: The directives.
        style: Marker of directives.
        scan_header: Finds the header.
    """
    head = scan_header(text, table, style)
    below = body.below(text, head) if style is Style.CELL else ()
    return ScannedCell(text, style, head, below)


def scan_job(
    text: str, table: Table, style: Style = Style.CELL, scan_header: Scanner = header.scan
) -> ScannedCell | None:
    """Find the directives of a job; return None for any other text.

    A job has a directive in its header or starts with ``%%ciao``. A cell with all directives below
    code is also a job, as in the first ciao, but only if a directive is in the position of a
    statement, never inside a string. So is one whose directives are behind blanks, or whose
    ``%%ciao`` is below another line of its header: their errors are the parser's.

    Args:
        text: The cell or file.
        table: The directives.
        style: Marker of directives.
        scan_header: Finds the header.
    """
    head = scan_header(text, table, style)
    if style is Style.FILE:
        return ScannedCell(text, style, head, ()) if head.tokens else None
    marked = bool(head.tokens) or header.is_cell_magic(text) or header.has_misplaced_mark(head)
    # Names are compared first: to find the positions of statements, the whole cell is compiled.
    if not marked and not any(map(table.find, body.directive_names_below(text, head))):
        # IPython's error would say that there is no magic of that name.
        line = loops.behind_blanks(text, head, table)
        return ScannedCell(text, style, head, (), line) if line else None
    below = body.below(text, head)
    if marked or any(token.equals and table.find(token.name) for token in below):
        return ScannedCell(text, style, head, below)
    return None
