"""Whether a cell that is being typed may be run: consoles ask at every Enter."""

from __future__ import annotations

from ciao_kernel.errors import UsageError
from ciao_kernel.magics import body, build_spec, header
from ciao_kernel.magics.table import Table


def answer(text: str, table: Table) -> dict[str, str] | str:
    """Say whether a job cell is complete; the kernel asks.

    Returns:
        Jupyter's reply where the header decides, ``{"status": …, "indent": ""}``: a header
        without code is incomplete, a wrong directive is invalid. Else the Python to ask IPython
        about: the cell with its directives as comments, or as it is if it is no job.
    """
    head = header.scan(text, table)
    tokens = (*head.tokens, *body.below(text, head))
    if not tokens and not header.is_cell_magic(text):
        return text
    try:
        body.check_header(head, table, header.Style.CELL)
        # The framework may follow in the next line; its absence is for the run to say.
        build_spec.read(tokens, table, default_framework="")
    except UsageError:
        return {"status": "invalid", "indent": ""}
    if head.body is None:
        return {"status": "incomplete", "indent": ""}
    return header.deliver(text, tokens)
