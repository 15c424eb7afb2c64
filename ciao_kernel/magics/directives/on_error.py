"""The directive ``%onError``, which keeps a program that fails at the frame of its error."""

from __future__ import annotations

from dataclasses import dataclass

from ciao_kernel.magics import stored_header
from ciao_kernel.magics.directive import Directive
from ciao_kernel.magics.numeric_types import Duration
from ciao_kernel.magics.shell_words import one_word

DEFAULT_SECONDS = 30 * 60
_MOST = 7 * 24 * 3600
"""A replica that is kept holds its processors and its GPUs."""
_FAIL, _DEBUG = "fail", "debug"


@dataclass(frozen=True, slots=True)
class OnError:
    """``fail``, or ``debug`` with an optional time; the value is the time in seconds."""

    expected: str = "fail, debug, or debug with a time up to 7d, such as debug:30m"

    def names(self) -> tuple[str, ...]:
        """Return common values; other times are valid too."""
        return (_FAIL, _DEBUG, f"{_DEBUG}:2h")

    def parse(self, text: str) -> int | None:
        """Return the seconds for which a program is kept; None if it is not."""
        word, colon, time = one_word(text, self.expected).partition(":")
        if word.lower() == _FAIL and not colon:
            return None
        try:
            seconds = Duration().parse(time) if colon else DEFAULT_SECONDS
        except ValueError:
            raise ValueError(self.expected) from None
        if word.lower() != _DEBUG or seconds > _MOST:
            raise ValueError(self.expected)
        return seconds

    def render(self, value: int | None) -> str:
        """Return the word, with its time in seconds."""
        return _FAIL if value is None else f"{_DEBUG}:{value}s"


def directives() -> list[Directive]:
    """Return the entries of the table, in the order of display."""
    return [
        Directive(
            "onError",
            "on_error",
            OnError(),
            "What happens when the program raises an error: it fails, or the first replica that "
            "does so opens a prompt of pdb at the error, for 30 minutes at most or another time.",
            "%onError=debug:30m",
            default="fail",
        ),
    ]


def kept_for(header: str) -> int | None:
    """Return the seconds of ``%onError`` in a job's stored header, None if it has none.

    Args:
        header: See :mod:`ciao_kernel.magics.stored_header`.
    """
    return stored_header.value(header, "onError", OnError(), None)
