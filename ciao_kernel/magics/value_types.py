"""The kinds of value that a directive takes: how each is read, written and completed.

A kind is a small object; the table of directives (:mod:`ciao_kernel.magics.table`) names one
for every directive. ``parse`` raises :class:`ValueError` with what was expected; the caller
adds the place. Kinds that are numbers are in :mod:`ciao_kernel.magics.numeric_types`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ciao_kernel.magics.shell_words import one_word, quote, words

_DNS_LABEL = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Offer(enum.Enum):
    """What completion offers for a value that is no choice of a few names."""

    NOTHING = enum.auto()
    FILES = enum.auto()
    REPLICAS = enum.auto()
    INTERPRETERS = enum.auto()
    METRICS = enum.auto()


class Kind(Protocol):
    """How the text behind ``=`` becomes a value and back."""

    @property
    def expected(self) -> str:
        """What the user is told to write: "a whole number from 0 to 1000"."""

    def parse(self, text: str) -> Any:
        """Return the value; raise ValueError where the text has none."""

    def render(self, value: Any) -> str:
        """Return text that parses to the value again."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few names, in any case. ``names`` is asked each time."""

    names: Callable[[], tuple[str, ...]]
    convert: Callable[[str], Any] = str

    @property
    def expected(self) -> str:
        """Names them all."""
        return "one of " + ", ".join(self.names())

    def parse(self, text: str) -> Any:
        """Find the name."""
        word = one_word(text, self.expected).lower()
        for name in self.names():
            if name.lower() == word:
                return self.convert(name)
        raise ValueError(self.expected)

    def render(self, value: Any) -> str:
        """Write the name."""
        return quote(str(value))


@dataclass(frozen=True, slots=True)
class Word:
    """One word of any form, such as a path."""

    expected: str = "one word (quoted if it holds spaces)"
    offer: Offer = Offer.NOTHING

    def parse(self, text: str) -> str:
        """Take its quotes off."""
        word = one_word(text, self.expected)
        if not word:
            raise ValueError(self.expected)
        return word

    def render(self, value: str) -> str:
        """Quote it."""
        return quote(value)


@dataclass(frozen=True, slots=True)
class JobName:
    """A name that Kubernetes takes for a job.

    The operator names pods ``NAME-evaluator-12`` and Services take 63 characters (DNS-1035),
    which leaves 45 for the name and a number that ciao may add.
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
        """Write it as it was."""
        return value


@dataclass(frozen=True, slots=True)
class Words:
    """Several words, split as a shell splits them."""

    expected: str = "words, quoted as in a shell"
    offer: Offer = Offer.NOTHING

    def parse(self, text: str) -> tuple[str, ...]:
        """Split, and want at least one."""
        found = words(text)
        if not found:
            raise ValueError(self.expected)
        return found

    def render(self, value: tuple[str, ...]) -> str:
        """Quote each."""
        return " ".join(map(quote, value))


@dataclass(frozen=True, slots=True)
class Pairs:
    """Environment variables: ``KEY=value``, several with spaces between."""

    expected: str = "KEY=value, quoted as in a shell (several with spaces between)"

    def parse(self, text: str) -> tuple[tuple[str, str], ...]:
        """Split into words, and each word at its first ``=``."""
        pairs = [word.partition("=") for word in words(text)]
        if not pairs or not all(equals and _KEY.fullmatch(key) for key, equals, _ in pairs):
            raise ValueError(self.expected)
        return tuple((key, value) for key, _, value in pairs)

    def render(self, value: tuple[tuple[str, str], ...]) -> str:
        """Quote each pair as one word."""
        return " ".join(quote(f"{key}={text}") for key, text in value)

    @staticmethod
    def masked(value: tuple[tuple[str, str], ...]) -> str:
        """Write the names alone: a value may be a password."""
        return " ".join(f"{key}=…" for key, _ in value)


@dataclass(frozen=True, slots=True)
class Flag:
    """Said or not said; ``=true`` and ``=false`` are understood, and further words if any.

    Args:
        more: The further words.
        convert: Makes a value of the word, which is ``true`` where there is none.
    """

    more: tuple[str, ...] = ()
    convert: Callable[[str], Any] = "true".__eq__

    @property
    def expected(self) -> str:
        """Names all words."""
        *first, last = self.names()
        return f"nothing, {', '.join(first)} or {last}"

    def names(self) -> tuple[str, ...]:
        """All words."""
        return ("true", "false", *self.more)

    def parse(self, text: str) -> Any:
        """Nothing is true."""
        word = one_word(text, self.expected).lower() if text.strip() else "true"
        word = {"yes": "true", "1": "true", "no": "false", "0": "false"}.get(word, word)
        if word not in self.names():
            raise ValueError(self.expected)
        return self.convert(word)

    def render(self, value: Any) -> str:
        """Write the word."""
        return str(value).lower()
