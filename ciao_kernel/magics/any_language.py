"""Cells of frameworks for any language: their text below the header need not be Python.

So ``%`` and ``!`` below the header are part of the text, nothing is compiled, and the lines of the
header are delivered empty: ``#`` starts a comment in some languages only, and with empty lines a
program's messages name the lines of the cell.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ciao_kernel.errors import SourceError
from ciao_kernel.magics import header
from ciao_kernel.magics.diagnostics import shown
from ciao_kernel.magics.header import Header, Style, Token
from ciao_kernel.magics.scanned_cell import ScannedCell
from ciao_kernel.magics.spelling import key
from ciao_kernel.magics.table import Table


def applies(tokens: Iterable[Token], table: Table, default_framework: str | None) -> bool:
    """Return whether the framework of a cell runs any language.

    Args:
        tokens: The directives of its header.
        table: The directives.
        default_framework: Framework if the header names none.
    """
    named = [one.value or "" for one in tokens if key(one.name) == "framework"]
    name = named[-1].strip("'\"").lower() if named else default_framework
    return name in table.names.any_language


def above(head: Header) -> Header:
    """Return the header without the lines for IPython below its last directive."""
    last = _last_line(head)
    return replace(head, foreign=tuple(line for line in head.foreign if line.number < last))


def text_below(cell: ScannedCell) -> str:
    """Return the text below the last directive."""
    last = _last_line(cell.header)
    rest = (line for line in header.lines(cell.text) if line.number > last)
    return "".join(line.text + line.end for line in rest)


def deliver(cell: ScannedCell, table: Table) -> str:
    """Return the text to deliver: that of a cell with empty lines for its header.

    Raises:
        SourceError: There is no text below the header.
    """
    below = text_below(cell)
    if not below.strip():
        last = cell.header.last
        raise SourceError(
            f"the {cell.style.noun} has directives but no text.",
            f"Put the text for the program of %command below them, in the same {cell.style.noun}.",
            line=last.number if last else 0,
            text=shown(last, table).text if last else "",
        )
    if cell.style is Style.FILE:
        return cell.text
    last_line = _last_line(cell.header)
    ends = (line.end for line in header.lines(cell.text) if line.number <= last_line)
    return "".join(ends) + below


def _last_line(head: Header) -> int:
    return max((token.line.number for token in head.tokens), default=0)
