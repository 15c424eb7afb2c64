"""Check of unfinished cells: consoles ask at every Enter whether a cell is complete."""

from __future__ import annotations

from ciao_kernel.errors import UsageError
from ciao_kernel.magics import any_language, body, build_spec, header
from ciao_kernel.magics.scanned_cell import ScannedCell
from ciao_kernel.magics.table import Table


def answer(cell: ScannedCell, table: Table) -> dict[str, str] | str:
    """Check whether a job cell is complete; the kernel calls this.

    Args:
        cell: The cell.
        table: The directives.

    Returns:
        Jupyter's reply ``{"status": …, "indent": ""}`` if the header is decisive: a header
        without code is incomplete, a wrong directive is invalid. Otherwise the Python code for
        IPython's own check: the cell with its directives as comments.
    """
    free = any_language.applies(cell, table, None)
    try:
        body.check_header(
            any_language.above(cell.header) if free else cell.header, table, cell.style
        )
        # The framework may follow on the next line; a run reports it if it is missing.
        build_spec.read(cell.header.tokens if free else cell.tokens, table, default_framework="")
    except UsageError:
        return {"status": "invalid", "indent": ""}
    if free:
        below = any_language.text_below(cell)
        # Only the user knows the end of a text in another language; an empty line ends it.
        done = bool(below.strip()) and below.endswith(("\n", "\r"))
        return {"status": "complete" if done else "incomplete", "indent": ""}
    if cell.header.body is None:
        return {"status": "incomplete", "indent": ""}
    return header.deliver(cell.text, cell.tokens)
