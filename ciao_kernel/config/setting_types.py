"""Value types of settings; :mod:`ciao_kernel.magics.value_types` has those of directives.

The text of a setting has no quotes: the file, the variable or the command line has already removed
them. So values with spaces, such as paths, need no second pair of quotes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ciao_kernel.magics.value_types import Choice


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder; ``~`` is the user's home."""

    expected: str = "the path of a folder"

    def parse(self, text: str) -> Path:
        """Return the absolute path."""
        try:
            path = Path(text.strip()).expanduser()
        except RuntimeError:
            raise ValueError(f"{self.expected} (no user has that name)") from None
        if not text.strip() or not text.isprintable():
            raise ValueError(self.expected)
        return path.absolute()

    def render(self, value: Path) -> str:
        """Return the path as text."""
        return str(value)


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text, or nothing."""

    expected: str = "one line of text, or nothing"

    def parse(self, text: str) -> str:
        """Remove the spaces around the text."""
        if not text.isprintable():
            raise ValueError(self.expected)
        return text.strip()

    def render(self, value: str) -> str:
        """Return the text unchanged."""
        return value


@dataclass(frozen=True, slots=True)
class Number:
    """A number that is at least ``low``."""

    low: float
    unit: str

    @property
    def expected(self) -> str:
        """Describe the range."""
        return f"a number of {self.unit}, at least {self.low:g}"

    def parse(self, text: str) -> float:
        """Return the number, after a check of the range."""
        try:
            value = float(text)
        except ValueError:
            raise ValueError(self.expected) from None
        if not self.low <= value < 1e12:
            raise ValueError(self.expected)
        return value

    def render(self, value: float) -> str:
        """Write a whole number without a decimal point."""
        return str(int(value)) if value == int(value) else repr(value)


@dataclass(frozen=True, slots=True)
class Images:
    """An image for each framework."""

    expected: str = "FRAMEWORK=IMAGE, separated by spaces"

    def parse(self, text: str) -> Mapping[str, str]:
        """Split the text into pairs; framework names become lower case."""
        pairs = [word.partition("=") for word in text.split()]
        if not all(name and image for name, _, image in pairs):
            raise ValueError(self.expected)
        return {name.lower(): image for name, _, image in pairs}

    def render(self, value: Mapping[str, str]) -> str:
        """Return the pairs as text."""
        return " ".join(f"{name}={image}" for name, image in value.items())


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts, each with an optional port."""

    expected: str = "HOST or HOST:PORT, separated by spaces"

    def parse(self, text: str) -> tuple[str, ...]:
        """Split the text, and refuse addresses: a registry is written without https://."""
        found = tuple(text.split())
        if any("/" in host or not host.isprintable() for host in found):
            raise ValueError(self.expected)
        return found

    def render(self, value: tuple[str, ...]) -> str:
        """Join the hosts with spaces."""
        return " ".join(value)


def one_of(*names: str, convert: Callable[[str], Any] = str) -> Choice:
    """Return a choice of a few names; ``convert`` turns the chosen name into the value."""
    return Choice(lambda: names, convert)
