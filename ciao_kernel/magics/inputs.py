"""The directive that takes variables of the notebook along: ``%input``."""

from __future__ import annotations

from dataclasses import dataclass

from ciao_kernel.magics.directive import Directive
from ciao_kernel.magics.shell_words import words


@dataclass(frozen=True, slots=True)
class Variables:
    """Names of variables. Each becomes the name of a file, so that an expression is none."""

    expected: str = "names of variables, with spaces or commas between"

    def parse(self, text: str) -> tuple[str, ...]:
        """Check each."""
        found = words(text.replace(",", " "))
        if not found or not all(word.isidentifier() for word in found):
            raise ValueError(self.expected)
        return found

    def render(self, value: tuple[str, ...]) -> str:
        """Write them with spaces between."""
        return " ".join(value)


def directives() -> list[Directive]:
    """The table's entries, in the order in which lists show them."""
    return [
        Directive(
            "input",
            "inputs",
            Variables(),
            "Variables of the notebook that the replicas get as files: df as input/df.parquet.",
            "%input=df labels",
            adds_up=True,
        ),
    ]
