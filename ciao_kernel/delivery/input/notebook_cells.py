"""The cells of a notebook, as IPython keeps them, and those inside magics."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_OTHER_CELLS = frozenset(
    {"ciao", "file", "pypy", "python", "python2", "python3", "script", "timeit", "writefile"}
)
"""Magics whose cells define nothing in the notebook, though they may be Python."""


@dataclass(frozen=True, slots=True)
class NotebookCells:
    """The cells, each parsed once.

    Args:
        variables: The variables of the notebook.
    """

    variables: Mapping[str, Any]
    _parsed: dict[str, list[ast.stmt]] = field(default_factory=dict)
    """Statements by the text of a cell."""

    def parsed(self, text: str) -> list[ast.stmt]:
        """Return the statements of a text, which nobody changes; none if it is not Python."""
        if text not in self._parsed:
            self._parsed[text] = _statements(text)
        return self._parsed[text]

    def newest_first(self) -> Iterator[tuple[str, list[ast.stmt]]]:
        """Yield the text and the statements of each cell; that inside a magic follows its cell."""
        cells = self.variables.get("In")  # IPython's list of cells
        for text in reversed([one for one in cells or () if isinstance(one, str)]):
            body = self.parsed(text)
            yield text, body
            for inner in map(_magic_text, reversed(body)):
                if inner:
                    yield inner, self.parsed(inner)


def _statements(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except (SyntaxError, ValueError):  # a cell with magics
        return []


def _magic_text(node: ast.stmt) -> str:
    """Return the Python cell of a magic such as ``%%time``; "" if it is something else."""
    match node:
        case ast.Expr(
            ast.Call(
                func=ast.Attribute(attr="run_cell_magic"),
                args=[ast.Constant(str(name)), _, ast.Constant(str(text))],
            )
        ):
            pass
        case _:
            return ""
    while text.startswith("%%"):  # one magic in another
        line, _, text = text.partition("\n")
        name = line.removeprefix("%%").partition(" ")[0]
    if name in _OTHER_CELLS:
        return ""
    # IPython translates the lines of this cell when the magic runs it.
    lines = ["pass" if line.startswith(("%", "!")) else line for line in text.split("\n")]
    return text if _statements(text) else "\n".join(lines)
