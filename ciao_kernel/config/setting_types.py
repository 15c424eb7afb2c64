"""The types of value that settings have; :mod:`ciao_kernel.magics.value_types` has a directive's.

A setting's text is its value as it stands: a file, a variable or the command line has taken its
quotes off already. So words with blanks in them, such as paths, need no second pair.
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
        """Make it absolute."""
        try:
            path = Path(text.strip()).expanduser()
        except RuntimeError:
            raise ValueError(f"{self.expected} (nobody has that name)") from None
        if not text.strip() or not text.isprintable():
            raise ValueError(self.expected)
        return path.absolute()

    def render(self, value: Path) -> str:
        """Write it in full."""
        return str(value)


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text, or nothing."""

    expected: str = "one line of text, or nothing"

    def parse(self, text: str) -> str:
        """Take the blanks around it away."""
        if not text.isprintable():
            raise ValueError(self.expected)
        return text.strip()

    def render(self, value: str) -> str:
        """Write it as it was."""
        return value


@dataclass(frozen=True, slots=True)
class Number:
    """A number from ``low`` up."""

    low: float
    unit: str

    @property
    def expected(self) -> str:
        """Names the least."""
        return f"a number of {self.unit} from {self.low:g} up"

    def parse(self, text: str) -> float:
        """Check the range."""
        try:
            value = float(text)
        except ValueError:
            raise ValueError(self.expected) from None
        if not self.low <= value < 1e12:
            raise ValueError(self.expected)
        return value

    def render(self, value: float) -> str:
        """Write a whole number without its point."""
        return str(int(value)) if value == int(value) else repr(value)


@dataclass(frozen=True, slots=True)
class Images:
    """An image for each framework."""

    expected: str = "FRAMEWORK=IMAGE, several with spaces between"

    def parse(self, text: str) -> Mapping[str, str]:
        """Split into pairs; a framework's name is in small letters."""
        pairs = [word.partition("=") for word in text.split()]
        if not all(name and image for name, _, image in pairs):
            raise ValueError(self.expected)
        return {name.lower(): image for name, _, image in pairs}

    def render(self, value: Mapping[str, str]) -> str:
        """Write the pairs."""
        return " ".join(f"{name}={image}" for name, image in value.items())


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts, each with its port if it has one."""

    expected: str = "HOST or HOST:PORT, several with spaces between"

    def parse(self, text: str) -> tuple[str, ...]:
        """Split, and refuse addresses: a registry is named without https://."""
        found = tuple(text.split())
        if any("/" in host or not host.isprintable() for host in found):
            raise ValueError(self.expected)
        return found

    def render(self, value: tuple[str, ...]) -> str:
        """Write them with spaces between."""
        return " ".join(value)


def one_of(*names: str, convert: Callable[[str], Any] = str) -> Choice:
    """One of a few names; ``convert`` makes the value of it."""
    return Choice(lambda: names, convert)
