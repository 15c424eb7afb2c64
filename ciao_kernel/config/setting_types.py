"""Value types of settings; :mod:`ciao_kernel.magics.value_types` has those of directives.

The text of a setting has no quotes: the file, the variable or the command line has already removed
them. So values with spaces, such as paths, need no second pair of quotes. A file may also give a
number, and a type with ``parse_toml`` takes TOML's tables or arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ciao_kernel.magics.numeric_types import Cpus
from ciao_kernel.magics.value_types import Choice, Kind


@runtime_checkable
class TomlKind(Kind, Protocol):
    """A type whose values have a form of their own in TOML, besides the text."""

    def parse_toml(self, value: object) -> Any:
        """Return the value; raise ValueError if a table or an array is not valid."""


def read(kind: Kind, value: object) -> Any:
    """Return the value of a setting.

    Args:
        kind: The type of the setting.
        value: A text, or a value of a TOML file.

    Raises:
        ValueError: The value is not valid; the message describes the expected value.
    """
    if isinstance(value, str):
        return kind.parse(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return kind.parse(str(value))
    if isinstance(kind, TomlKind):
        return kind.parse_toml(value)
    raise ValueError(kind.expected)


def shown(value: object) -> str:
    """Return a wrong value as a message shows it, close to its form in a TOML file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name} = {shown(one)}' for name, one in value.items())}}}"
    return repr(value) if isinstance(value, str) else str(value)


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
class OrNothing:
    """A value of another type that is a text, or nothing."""

    kind: Kind

    @property
    def expected(self) -> str:
        """Describe both."""
        return f"{self.kind.expected}, or nothing"

    def parse(self, text: str) -> str:
        """Return the value of the other type; "" for nothing."""
        if not text.strip():
            return ""
        try:
            return str(self.kind.parse(text))
        except ValueError as error:
            raise ValueError(f"{error}, or nothing") from None

    def render(self, value: str) -> str:
        """Return the value unchanged."""
        return value


@dataclass(frozen=True, slots=True)
class PortAddress:
    """An address with ``%PORT%`` in the place of a port, or nothing."""

    expected: str = "an address that begins with / or http and contains %PORT%, or nothing"

    def parse(self, text: str) -> str:
        """Check the address."""
        found = text.strip()
        begins = found.startswith(("/", "http://", "https://"))
        if found and not (begins and "%PORT%" in found and found.isprintable()):
            raise ValueError(self.expected)
        return found

    def render(self, value: str) -> str:
        """Return the address unchanged."""
        return value


@dataclass(frozen=True, slots=True)
class Number:
    """A number that is at least ``minimum``."""

    minimum: float
    unit: str

    @property
    def expected(self) -> str:
        """Describe the range."""
        return f"a number of {self.unit}, at least {self.minimum:g}"

    def parse(self, text: str) -> float:
        """Return the number, after a check of the range."""
        try:
            value = float(text)
        except ValueError:
            raise ValueError(self.expected) from None
        if not self.minimum <= value < 1e12:
            raise ValueError(self.expected)
        return value

    def render(self, value: float) -> str:
        """Write a whole number without a decimal point."""
        return str(int(value)) if value == int(value) else repr(value)


@dataclass(frozen=True, slots=True)
class CpuRequest:
    """Processors in Kubernetes' notation, or none."""

    expected: str = "processors in Kubernetes' notation, such as 100m or 0.5; empty or 0: none"

    def parse(self, text: str) -> str:
        """Return the amount as written, "" for none."""
        if text.strip() in ("", "0"):
            return ""
        try:
            return Cpus().parse(text)
        except ValueError:
            raise ValueError(self.expected) from None

    def render(self, value: str) -> str:
        """Return the value unchanged."""
        return value


@dataclass(frozen=True, slots=True)
class Images:
    """An image for each framework."""

    expected: str = (
        'FRAMEWORK=IMAGE, separated by spaces; in a file also a table {FRAMEWORK = "IMAGE"}'
    )

    def parse(self, text: str) -> Mapping[str, str]:
        """Split the text into pairs; framework names become lower case."""
        pairs = [word.partition("=") for word in text.split()]
        # No image has a comma: this one would separate two pairs.
        if not all(name and image and "," not in image for name, _, image in pairs):
            raise ValueError(self.expected)
        return {name.lower(): image for name, _, image in pairs}

    def parse_toml(self, value: object) -> Mapping[str, str]:
        """Take a table of texts; framework names become lower case."""
        if not isinstance(value, Mapping):
            raise ValueError(self.expected)
        images = {str(name).lower(): image for name, image in value.items()}
        # Equal only if each image is a text, and no name or image has spaces.
        if images != self.parse(self.render(images)):
            raise ValueError(self.expected)
        return images

    def render(self, value: Mapping[str, str]) -> str:
        """Return the pairs as text."""
        return " ".join(f"{name}={image}" for name, image in value.items())


class Words:
    """Words that are separated by spaces."""

    expected: str

    def parse(self, text: str) -> tuple[str, ...]:
        """Split the text, and refuse words of another form."""
        found = tuple(text.split())
        if not all(map(self.accepts, found)):
            raise ValueError(self.expected)
        return found

    def parse_toml(self, value: object) -> tuple[str, ...]:
        """Take an array of texts."""
        words = value if isinstance(value, list) else [value]
        # Equal only if each word is a text without spaces.
        if [*self.parse(" ".join(map(str, words)))] != value:
            raise ValueError(self.expected)
        return tuple(words)

    def render(self, value: tuple[str, ...]) -> str:
        """Join the words with spaces."""
        return " ".join(value)

    @staticmethod
    def accepts(word: str) -> bool:
        """Return whether a word has the right form."""
        raise NotImplementedError


@dataclass(frozen=True)
class Hosts(Words):
    """Hosts, each with an optional port."""

    expected: str = (
        'HOST or HOST:PORT, separated by spaces; in a file also an array ["HOST", "HOST:PORT"]'
    )

    @staticmethod
    def accepts(word: str) -> bool:
        """Refuse addresses: a registry is written without https://. A comma separates nothing."""
        return not {"/", ","}.intersection(word) and word.isprintable()


def one_of(*names: str, convert: Callable[[str], Any] = str) -> Choice:
    """Return a choice of a few names; ``convert`` turns the chosen name into the value."""
    return Choice(lambda: names, convert)
