"""The directive ``%output``, which brings values of the program back."""

from __future__ import annotations

from dataclasses import dataclass

from ciao_kernel.magics.directive import Directive
from ciao_kernel.magics.shell_words import words


@dataclass(frozen=True, slots=True)
class ProgramVariables:
    """Names of variables that the program has at its end."""

    expected: str = "names of the program's variables, separated by spaces or commas"

    def parse(self, text: str) -> tuple[str, ...]:
        """Check each word; the same name twice counts once."""
        found = words(text.replace(",", " "))
        if not found:
            raise ValueError(self.expected)
        for word in found:
            if not word.isidentifier():
                raise ValueError(
                    f"{self.expected}; a file stays in the job's folder on this machine, and on a "
                    "%volume on a cluster"
                )
        return tuple(dict.fromkeys(found))

    def render(self, value: tuple[str, ...]) -> str:
        """Join the words with spaces."""
        return " ".join(value)


def directives() -> list[Directive]:
    """Return the entries of the table, in the order of display."""
    return [
        Directive(
            "output",
            "outputs",
            ProgramVariables(),
            'Variables of the program whose values come back at its end: _job.result["metrics"]. '
            "They are those of the replica that decides about the job.",
            "%output=metrics",
            repeatable=True,
            option_word="outputValues",  # --output is a command's own format, as in kubectl
        ),
    ]
