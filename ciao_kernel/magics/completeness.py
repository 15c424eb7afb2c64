"""Check of unfinished cells: consoles ask at every Enter whether a cell is complete."""

from __future__ import annotations

from ciao_kernel.errors import UsageError
from ciao_kernel.magics import body, build_spec, header
from ciao_kernel.magics.table import Table


def answer(text: str, table: Table) -> dict[str, str] | str:
    """Check whether a job cell is complete; the kernel calls this.

    Returns:
        Jupyter's reply ``{"status": …, "indent": ""}`` if the header is decisive: a header
        without code is incomplete, a wrong directive is invalid. Otherwise the Python code for
        IPython's own check: the cell with its directives as comments, unchanged if it is no job.
    """
    head = header.scan(text, table)
    tokens = (*head.tokens, *body.below(text, head))
    if not tokens and not header.is_cell_magic(text):
        return text
    try:
        body.check_header(head, table, header.Style.CELL)
        # The framework may follow on the next line; a run reports it if it is missing.
        build_spec.read(tokens, table, default_framework="")
    except UsageError:
        return {"status": "invalid", "indent": ""}
    if head.body is None:
        return {"status": "incomplete", "indent": ""}
    return header.deliver(text, tokens)
