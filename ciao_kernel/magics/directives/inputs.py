"""The directive ``%input``, which delivers variables of the notebook."""

from __future__ import annotations

from dataclasses import dataclass

from ciao_kernel.magics import stored_header
from ciao_kernel.magics.directive import Directive
from ciao_kernel.magics.shell_words import words


@dataclass(frozen=True, slots=True)
class Variables:
    """Names of variables. Each name becomes a file name, so expressions are not allowed."""

    expected: str = "names of variables, separated by spaces or commas"

    def parse(self, text: str) -> tuple[str, ...]:
        """Check each word."""
        found = words(text.replace(",", " "))
        if not found or not all(word.isidentifier() for word in found):
            raise ValueError(self.expected)
        return found

    def render(self, value: tuple[str, ...]) -> str:
        """Join the words with spaces."""
        return " ".join(value)


def directives() -> list[Directive]:
    """Return the entries of the table, in the order of display."""
    return [
        Directive(
            "input",
            "inputs",
            Variables(),
            "Variables, functions and classes of the notebook, for from ciao_input import df; "
            "values are also files such as input/df.parquet.",
            "%input=df labels",
            repeatable=True,
        ),
    ]


def of_header(header: str) -> tuple[str, ...]:
    """Return the names that a job's stored header gives to the program.

    Args:
        header: The stored header.
    """
    return stored_header.value(header, "input", Variables(), ())
