"""Names of directives as a user finds them in the cell: ``%image (line 3)``, ``--image``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ciao_kernel.magics.header import Token
from ciao_kernel.magics.table import Table


def as_written(tokens: Iterable[Token], table: Table) -> Mapping[str, str]:
    """Return the name and the lines of each directive, by its field (``cluster.image``).

    Args:
        tokens: The directives of a header and the options of a command line; an option has no line.
        table: The directives.
    """
    lines: dict[str, list[int]] = {}
    names: dict[str, str] = {}
    for token in tokens:
        if entry := table.find(token.name):
            number = token.line.number
            names[entry.field] = f"%{entry.name}" if number else entry.option
            lines.setdefault(entry.field, [])
            if number and number not in lines[entry.field]:
                lines[entry.field].append(number)
    return {
        field: name + _place(lines[field]) if name.startswith("%") else name
        for field, name in names.items()
    }


def _place(lines: list[int]) -> str:
    if len(lines) == 1:
        return f" (line {lines[0]})"
    return f" (lines {', '.join(map(str, lines[:-1]))} and {lines[-1]})"
