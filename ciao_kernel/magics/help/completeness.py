"""Check of unfinished cells: consoles ask at every Enter whether a cell is complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ciao_kernel.errors import UsageError
from ciao_kernel.magics import any_language, body, placeholders, spec_reader
from ciao_kernel.magics.header import Token
from ciao_kernel.magics.program_text import deliver
from ciao_kernel.magics.scanned_cell import ScannedCell
from ciao_kernel.magics.spelling import key
from ciao_kernel.magics.table import Table


def answer(
    cell: ScannedCell, table: Table, variables: Mapping[str, Any] | None = None
) -> dict[str, str] | str:
    """Check whether a job cell is complete; the kernel calls this.

    Args:
        cell: The cell.
        table: The directives.
        variables: The notebook's variables. A line that contains one is not checked, because its
            expressions may have effects, and the user types more lines before they are meant; only
            the framework is evaluated.

    Returns:
        Jupyter's reply ``{"status": …, "indent": ""}`` if the header is decisive: a header
        without code is incomplete, a wrong directive is invalid. Otherwise the Python code for
        IPython's own check: the cell with its directives as comments.
    """
    named = [token for token in cell.header.tokens if key(token.name) == "framework"]
    free = any_language.applies(placeholders.expand(named, variables).tokens, table, None)
    try:
        body.check_header(
            any_language.above(cell.header) if free else cell.header, table, cell.style
        )
        # The framework may follow on the next line; a run reports it if it is missing.
        tokens = cell.header.tokens if free else cell.tokens
        spec_reader.read(_certain(tokens, variables or {}), table, default_framework="")
    except UsageError:
        return {"status": "invalid", "indent": ""}
    if free:
        below = any_language.text_below(cell)
        # Only the user knows the end of a text in another language; an empty line ends it.
        done = bool(below.strip()) and below.endswith(("\n", "\r"))
        return {"status": "complete" if done else "incomplete", "indent": ""}
    if cell.header.body is None:
        return {"status": "incomplete", "indent": ""}
    return deliver(cell.text, cell.tokens)


def _certain(tokens: tuple[Token, ...], variables: Mapping[str, Any]) -> tuple[Token, ...]:
    """Return the directives of lines without a variable of the notebook."""
    uncertain = {one.line.start for one in tokens if placeholders.has_variable(one, variables)}
    return tuple(one for one in tokens if one.line.start not in uncertain)
