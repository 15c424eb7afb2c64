"""The side of the user while a cell runs: who shows its output and answers its prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ciao_kernel.model import Notice
from ciao_kernel.plugins import Console, Display, Elsewhere


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """A notebook or a terminal that runs one cell."""

    display: Display
    """Receives the events."""
    variables: Mapping[str, Any] | None
    """The notebook's variables, for ``%input``; None if there is no notebook."""
    console: Console | Elsewhere | None
    """Where breakpoint() opens a prompt; None if nobody can answer."""

    def show(self, text: str) -> None:
        """Show a notice."""
        self.display.show(Notice(text))
