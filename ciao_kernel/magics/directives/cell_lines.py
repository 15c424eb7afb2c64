"""The directive ``%lines``, which limits the lines of each replica that a cell shows."""

from __future__ import annotations

from dataclasses import dataclass

from ciao_kernel.magics import stored_header
from ciao_kernel.magics.directive import Directive
from ciao_kernel.magics.shell_words import one_word
from ciao_kernel.model import ALL_LINES

DEFAULT_LINES = 200
"""First and last lines of a replica that a cell shows: a few screens, which a page draws fast."""
_MOST = 100_000
_ALL = "all"


@dataclass(frozen=True, slots=True)
class LineCount:
    """A number of lines, or ``all``, which is :data:`~ciao_kernel.model.ALL_LINES`."""

    expected: str = f"a whole number from 1 to {_MOST}, or {_ALL}"

    def parse(self, text: str) -> int:
        """Parse a number; digits of other scripts, which int() accepts, are rejected."""
        word = one_word(text, self.expected).lower()
        if word == _ALL:
            return ALL_LINES
        if not (word.isascii() and word.isdigit() and len(word) < 10 and 1 <= int(word) <= _MOST):
            raise ValueError(self.expected)
        return int(word)

    def render(self, value: int) -> str:
        """Return plain digits, or ``all``."""
        return _ALL if value >= ALL_LINES else str(value)


def directives() -> list[Directive]:
    """Return the entries of the table, in the order of display."""
    return [
        Directive(
            "lines",
            "lines",
            LineCount(),
            "Keep the first and the last lines of each replica in the cell, so many of each; "
            "`%ciao logs NAME` always shows all.",
            "%lines=all",
            default=f"{DEFAULT_LINES}; in a terminal all",
        ),
    ]


def line_count_in(header: str) -> int | None:
    """Return the number of lines in a job's stored header, None if it has none.

    Backends call it when they find the job.

    Args:
        header: See :mod:`ciao_kernel.magics.stored_header`.
    """
    return stored_header.value(header, "lines", LineCount(), None)
