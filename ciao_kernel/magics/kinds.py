"""The kinds of value that a directive takes: how each is read, written and completed.

A kind is a small object; the table of directives (:mod:`ciao_kernel.magics.table`) names one
for every directive. ``parse`` raises :class:`ValueError` with what was expected; the caller
adds the place.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ciao_kernel.model import Gpu

MAX_COUNT = 1000
"""Replicas of one role. The operator has no limit; a typo of three digits more has a price."""

_QUANTITY = re.compile(r"(?P<number>\d+(?:\.\d*)?|\.\d+)(?P<suffix>[EPTGMK]i|[numkMGTPE]|[eE][+-]?\d+)?")
_DNS_LABEL = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PLAIN = re.compile(r"[A-Za-z0-9@%+=:,./_-]+")


class Kind(Protocol):
    """How the text behind ``=`` becomes a value and back."""

    expected: str
    """What the user is told to write: "a whole number from 0 to 1000"."""

    def parse(self, text: str) -> Any:
        """Return the value; raise ValueError where the text has none."""

    def render(self, value: Any) -> str:
        """Return text that parses to the value again."""


def words(text: str) -> tuple[str, ...]:
    """Split as a POSIX shell does, quotes and backslashes included; ``#`` starts a comment."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    try:
        return tuple(lexer)
    except ValueError as error:
        raise ValueError("closed quotes" if "quot" in str(error).lower() else "no trailing backslash") from None


def one_word(text: str) -> str:
    """Return the single word of a text, without its quotes."""
    found = words(text)
    if len(found) != 1:
        raise ValueError("one word (quote it if it holds spaces)")
    return found[0]


def quote(word: str) -> str:
    """Quote a word so that :func:`words` gives it back, ``;%`` and ``#`` included."""
    return word if _PLAIN.fullmatch(word) and not word.startswith("%") else shlex.quote(word)


@dataclass(frozen=True, slots=True)
class Count:
    """How many replicas, or processes."""

    low: int = 0
    high: int = MAX_COUNT

    @property
    def expected(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    def parse(self, text: str) -> int:
        word = one_word(text)
        # isascii: int() would take Arabic and other digits, which nobody means here.
        if not (word.isascii() and word.lstrip("+").isdigit()) or len(word) > 12:
            raise ValueError(self.expected)
        value = int(word)
        if not self.low <= value <= self.high:
            raise ValueError(self.expected)
        return value

    def render(self, value: int) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A Kubernetes quantity (apimachinery's resource.Quantity), kept as it was written."""

    what: str
    example: str

    @property
    def expected(self) -> str:
        return f"{self.what} as Kubernetes writes it, such as {self.example}"

    def parse(self, text: str) -> str:
        word = one_word(text)
        match = _QUANTITY.fullmatch(word) if word.isascii() else None
        if match is None or not float(match["number"]):
            raise ValueError(self.expected)
        if self.what == "memory" and match["suffix"] == "m":
            # 1000m of memory is one byte: Kubernetes takes it, and no one ever means it.
            raise ValueError(self.expected + " (m is a thousandth of a byte; M or Mi was meant)")
        return word

    def render(self, value: str) -> str:
        return value


@dataclass(frozen=True, slots=True)
class GpuCount:
    """GPUs of a replica: a number, with the vendor's resource name in front if need be."""

    expected: str = "a whole number, or a resource and a number such as amd.com/gpu:2"

    def parse(self, text: str) -> Gpu:
        resource, colon, count = one_word(text).rpartition(":")
        if colon and not _RESOURCE.fullmatch(resource):
            raise ValueError(self.expected)
        try:
            number = Count(0, 64).parse(count)
        except ValueError:
            raise ValueError(self.expected) from None
        return Gpu(number, resource) if colon else Gpu(number)

    def render(self, value: Gpu) -> str:
        return str(value.count) if value == Gpu(value.count) else f"{value.resource}:{value.count}"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few names. ``names`` is asked each time: plug-ins add to it."""

    names: Callable[[], tuple[str, ...]]
    convert: Callable[[str], Any] = str

    @property
    def expected(self) -> str:
        return "one of " + ", ".join(self.names())

    def parse(self, text: str) -> Any:
        word = one_word(text).lower()
        if word not in self.names():
            raise ValueError(self.expected)
        return self.convert(word)

    def render(self, value: Any) -> str:
        return quote(str(value))


@dataclass(frozen=True, slots=True)
class Word:
    """One word of any form, such as a path."""

    expected: str = "one word (quote it if it holds spaces)"

    def parse(self, text: str) -> str:
        word = one_word(text)
        if not word:
            raise ValueError(self.expected)
        return word

    def render(self, value: str) -> str:
        return quote(value)


@dataclass(frozen=True, slots=True)
class JobName:
    """A name that Kubernetes takes for a job.

    The operator names pods ``NAME-evaluator-12`` and Services take 63 characters (DNS-1035),
    which leaves 45 for the name and a number that ciao may add.
    """

    expected: str = "a name of at most 45 lower-case letters, digits and dashes that starts with a letter"

    def parse(self, text: str) -> str:
        word = one_word(text)
        if len(word) > 45 or not _DNS_LABEL.fullmatch(word):
            raise ValueError(self.expected)
        return word

    def render(self, value: str) -> str:
        return value


@dataclass(frozen=True, slots=True)
class Words:
    """Several words, split as a shell splits them."""

    expected: str = "words, quoted as in a shell"

    def parse(self, text: str) -> tuple[str, ...]:
        found = words(text)
        if not found:
            raise ValueError(self.expected)
        return found

    def render(self, value: tuple[str, ...]) -> str:
        return " ".join(map(quote, value))


@dataclass(frozen=True, slots=True)
class Pairs:
    """Environment variables: ``KEY=value``, several with spaces between."""

    expected: str = "KEY=value, quoted as in a shell (several with spaces between)"

    def parse(self, text: str) -> tuple[tuple[str, str], ...]:
        pairs = []
        for word in words(text):
            key, equals, value = word.partition("=")
            if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
                raise ValueError(self.expected)
            pairs.append((key, value))
        if not pairs:
            raise ValueError(self.expected)
        return tuple(pairs)

    def render(self, value: tuple[tuple[str, str], ...]) -> str:
        return " ".join(quote(f"{key}={text}") for key, text in value)


@dataclass(frozen=True, slots=True)
class Duration:
    """A time span in seconds, written as ``90``, ``90s``, ``15m``, ``2h30m`` or ``1d``."""

    expected: str = "a time such as 90s, 15m, 2h30m or 1d"

    def parse(self, text: str) -> int:
        word = one_word(text)
        if not word.isascii() or len(word) > 12:
            raise ValueError(self.expected)
        if word.isdigit():
            seconds = int(word)
        elif word and (match := _DURATION.fullmatch(word)):
            days, hours, minutes, rest = (int(part or 0) for part in match.groups())
            seconds = ((days * 24 + hours) * 60 + minutes) * 60 + rest
        else:
            raise ValueError(self.expected)
        if not seconds:
            raise ValueError(self.expected)
        return seconds

    def render(self, value: int) -> str:
        return f"{value}s"


@dataclass(frozen=True, slots=True)
class Flag:
    """Said or not said; ``=true`` and ``=false`` are understood."""

    expected: str = "nothing, true or false"

    def parse(self, text: str) -> bool:
        word = one_word(text).lower() if text.strip() else "true"
        if word not in ("true", "false", "yes", "no", "1", "0"):
            raise ValueError(self.expected)
        return word in ("true", "yes", "1")

    def render(self, value: bool) -> str:
        return "true" if value else "false"
