"""Protocol of the place where a person types answers to a running job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class PromptClosed(Exception):
    """The person has closed the prompt, and nothing else."""


class Console(Protocol):
    """A cell whose front end takes input, or a terminal."""

    def write(self, text: str) -> None:
        """Show text at once."""

    async def ask(self, prompt: str) -> str:
        """Return the line that the person types; cancellation takes the question back.

        Raises:
            PromptClosed: The person wants no prompt now.
        """


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A terminal whose table leaves no room for a prompt: another terminal opens it."""
