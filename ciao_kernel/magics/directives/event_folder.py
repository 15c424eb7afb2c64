"""The directive ``%tensorboard``, which names a folder of event files."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from ciao_kernel.magics import stored_header
from ciao_kernel.magics.directive import Directive
from ciao_kernel.magics.directives.outputs import path
from ciao_kernel.magics.shell_words import one_word, quote
from ciao_kernel.magics.value_types import refuse_switch

DEFAULT = "logs"
"""The folder of ``%tensorboard`` without a value."""


@dataclass(frozen=True, slots=True)
class EventFolder:
    """A folder beside the program; without a value :data:`DEFAULT`."""

    expected: str = "a folder beside the program, such as runs; %tensorboard alone is logs"
    bare: bool = True

    def parse(self, text: str) -> str:
        """Return the folder without a slash at its end."""
        if not text.strip():
            return DEFAULT
        word = path(one_word(text, self.expected))
        refuse_switch(word)
        if any(sign in word for sign in "*?"):
            raise ValueError(f"{self.expected}; * and ? are no part of it")
        return posixpath.normpath(word)

    def render(self, value: str) -> str:
        """Quote the folder."""
        return quote(value)


def directives() -> list[Directive]:
    """Return the entries of the table, in the order of display."""
    return [
        Directive(
            "tensorboard",
            "tensorboard",
            EventFolder(),
            "Show the event files of a folder beside the program, CIAO_LOGDIR, in TensorBoard "
            "while the job runs; without a value it is the folder logs.",
            "%tensorboard=runs",
            default="logs",
            also_magic=True,
        ),
    ]


def event_folder_in(header: str) -> str | None:
    """Return the folder in a job's stored header; None if it has none.

    Args:
        header: See :mod:`ciao_kernel.magics.stored_header`.
    """
    return stored_header.value(header, "tensorboard", EventFolder(), None)
