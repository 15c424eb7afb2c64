"""Types of values that directives take, with parsing, rendering and completion.

A type is a small object; the table of directives (:mod:`ciao_kernel.magics.table`) assigns a type
to every directive. ``parse`` raises :class:`ValueError` with a description of the expected value;
the caller adds the position. :mod:`ciao_kernel.magics.numeric_types` contains the numeric types.
"""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ciao_kernel.magics.shell_words import one_word, pairs, quote, quote_pairs, words

_DNS_LABEL = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SWITCHES = frozenset({"true", "false", "on", "off", "yes", "no"})


class Suggestions(enum.Enum):
    """Completions for a value that is not a fixed choice of names."""

    NOTHING = enum.auto()
    FILES = enum.auto()
    REPLICAS = enum.auto()
    ROLES = enum.auto()
    INTERPRETERS = enum.auto()
    METRICS = enum.auto()


class Kind(Protocol):
    """Conversion between the text after ``=`` and a value."""

    @property
    def expected(self) -> str:
        """Describe the expected value for the user: "a whole number from 0 to 1000"."""

    def parse(self, text: str) -> Any:
        """Return the value; raise ValueError if the text is not valid."""

    def render(self, value: Any) -> str:
        """Return a text that parses to the same value."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few names, in upper or lower case. ``names`` is called each time.

    Args:
        names: Returns the names.
        convert: Makes the value of a name.
        meant: Returns the name that another word means, for a hint, or "".
    """

    names: Callable[[], tuple[str, ...]]
    convert: Callable[[str], Any] = str
    meant: Callable[[str], str] = field(default=lambda word: "")

    @property
    def expected(self) -> str:
        """List all names."""
        return "one of " + ", ".join(self.names())

    def parse(self, text: str) -> Any:
        """Find the name."""
        word = one_word(text, self.expected).lower()
        for name in self.names():
            if name.lower() == word:
                return self.convert(name)
        raise ValueError(self.expected)

    def nearest(self, text: str) -> str:
        """Return the name that a wrong text probably means, or ""."""
        near = difflib.get_close_matches(text.lower(), self.names(), n=1)
        return self.meant(text) or next(iter(near), "")

    def render(self, value: Any) -> str:
        """Write the name."""
        return quote(str(value))


def choice_of(names: Iterable[str], convert: Callable[[str], Any] = str) -> Choice:
    """Return a choice of names that stay as they are; ``convert`` makes the value of a name."""
    fixed = tuple(names)
    return Choice(lambda: fixed, convert)


@dataclass(frozen=True, slots=True)
class Word:
    """One word of any form, such as a path."""

    expected: str = "one word (quoted if it contains spaces)"
    offer: Suggestions = Suggestions.NOTHING

    def parse(self, text: str) -> str:
        """Remove the quotes."""
        word = one_word(text, self.expected)
        if not word:
            raise ValueError(self.expected)
        return word

    def render(self, value: str) -> str:
        """Quote the word."""
        return quote(value)


@dataclass(frozen=True, slots=True)
class JobName:
    """A name that Kubernetes accepts for a job.

    The operator names pods ``NAME-evaluator-12``, and names of Services have at most 63 characters
    (DNS-1035). This leaves 45 characters for the name and a number that ciao may add.
    """

    expected: str = (
        "a name of at most 45 lower-case letters, digits and dashes that starts with a letter"
    )

    def parse(self, text: str) -> str:
        """Check the form."""
        word = one_word(text, self.expected)
        if len(word) > 45 or not _DNS_LABEL.fullmatch(word):
            raise ValueError(self.expected)
        return word

    def render(self, value: str) -> str:
        """Return the value unchanged."""
        return value


@dataclass(frozen=True, slots=True)
class Words:
    """Several words, split as in a shell."""

    expected: str = "words, quoted as in a shell"
    offer: Suggestions = Suggestions.NOTHING

    def parse(self, text: str) -> tuple[str, ...]:
        """Split the text; at least one word is required."""
        found = words(text)
        if not found:
            raise ValueError(self.expected)
        return found

    def render(self, value: tuple[str, ...]) -> str:
        """Quote each word."""
        return " ".join(map(quote, value))


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The words of a command, split as in a shell; quotes around the whole are accepted too."""

    expected: str = "a program and its arguments, quoted as in a shell"

    def parse(self, text: str) -> tuple[str, ...]:
        """Split the text; a single word with blanks is split again."""
        found = words(text)
        if len(found) == 1 and any(blank in found[0] for blank in " \t"):
            found = words(found[0])
        if not found or not found[0]:
            raise ValueError(self.expected)
        return found

    def render(self, value: tuple[str, ...]) -> str:
        """Quote each word, and a single word with blanks twice."""
        text = " ".join(map(quote, value))
        split_again = len(value) == 1 and any(blank in value[0] for blank in " \t")
        return quote(text) if split_again else text


@dataclass(frozen=True, slots=True)
class Pairs:
    """Environment variables: ``KEY=value``, separated by spaces."""

    expected: str = "KEY=value, quoted as in a shell (several separated by spaces)"

    def parse(self, text: str) -> tuple[tuple[str, str], ...]:
        """Split into words, and each word at its first ``=``."""
        found = [word.partition("=") for word in pairs(text)]
        if not found or not all(equals and _KEY.fullmatch(key) for key, equals, _ in found):
            raise ValueError(self.expected)
        return tuple((key, value) for key, _, value in found)

    def render(self, value: tuple[tuple[str, str], ...]) -> str:
        """Quote each pair as one word."""
        return quote_pairs(value)

    @staticmethod
    def mask(value: tuple[tuple[str, str], ...]) -> str:
        """Return the names only, because a value may be a password."""
        return " ".join(f"{key}=…" for key, _ in value)


def may_be_bare(kind: object) -> bool:
    """Return whether a directive of a kind is complete without a value."""
    return isinstance(kind, Flag) or bool(getattr(kind, "bare", False))


def refuse_switch(word: str) -> None:
    """Refuse ``false`` and the like where a name is read: a file called so is never meant.

    Args:
        word: The only word of a directive that may be without a value.

    Raises:
        ValueError: The word switches something on or off.
    """
    if word.lower() in _SWITCHES:
        raise ValueError("no value to switch it on; to switch it off, leave it out")


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag: present or absent, or with ``=true``, ``=false`` or one of the additional words.

    Args:
        more: Additional words.
        convert: Converts the word to a value; without a word it receives ``true``.
    """

    more: tuple[str, ...] = ()
    convert: Callable[[str], Any] = "true".__eq__

    @property
    def expected(self) -> str:
        """List all words."""
        *first, last = self.names()
        return f"nothing, {', '.join(first)} or {last}"

    def names(self) -> tuple[str, ...]:
        """Return all words."""
        return ("true", "false", *self.more)

    def parse(self, text: str) -> Any:
        """Return the value; an empty text means true."""
        word = one_word(text, self.expected).lower() if text.strip() else "true"
        word = {"yes": "true", "1": "true", "no": "false", "0": "false"}.get(word, word)
        if word not in self.names():
            raise ValueError(self.expected)
        return self.convert(word)

    def render(self, value: Any) -> str:
        """Write the word."""
        return str(value).lower()
