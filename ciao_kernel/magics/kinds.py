"""The kinds of value that a directive takes: how each is read, written and completed.

A kind is a small object; the table of directives (:mod:`ciao_kernel.magics.table`) names one
for every directive. ``parse`` raises :class:`ValueError` with what was expected; the caller
adds the place.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ciao_kernel.magics.words import one_word, words
from ciao_kernel.magics.words import quote as quote
from ciao_kernel.model import Gpu

MAX_COUNT = 1000
"""Replicas of one role. The operator has no limit; a typo of three digits more has a price."""

MAX_GPUS = 64
"""GPUs of one replica."""

MAX_SECONDS = 10**9
"""Longest time span: thirty years, which no one means, and which fits everywhere."""

_COUNT = re.compile(r"\+?[0-9]{1,9}")
_QUANTITY = re.compile(
    r"([0-9]{1,15}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})([EPTGMK]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?"
)
_BYTES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18} | {
    f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", 1)
}
_DNS_LABEL = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_DURATION = re.compile(
    r"(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?|(?P<plain>[0-9]+)"
)
_RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
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
class Count:
    """How many replicas, or processes."""

    low: int = 0
    high: int = MAX_COUNT

    @property
    def expected(self) -> str:
        """Names the range."""
        return f"a whole number from {self.low} to {self.high}"

    def parse(self, text: str) -> int:
        """Read a number; digits of other scripts, which int() takes, are not meant here."""
        word = one_word(text, self.expected)
        if not _COUNT.fullmatch(word) or not self.low <= int(word) <= self.high:
            raise ValueError(self.expected)
        return int(word)

    def render(self, value: int) -> str:
        """Write plain digits."""
        return str(value)


@dataclass(frozen=True, slots=True)
class Cpus:
    """Processors as Kubernetes writes them, kept as written: ``2``, ``0.5``, ``500m``."""

    expected: str = "processors as Kubernetes writes them, such as 2, 0.5 or 500m"

    def parse(self, text: str) -> str:
        """Check the form. Kubernetes takes 4Gi processors too, and no one ever means them."""
        word = one_word(text, self.expected)
        match = _QUANTITY.fullmatch(word)
        if match is None or not float(match[1]) or match[2] not in (None, "m"):
            raise ValueError(self.expected)
        return word

    def render(self, value: str) -> str:
        """Write it as it was."""
        return value


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory as Kubernetes writes it, kept as written: ``4Gi``, ``512Mi``, ``1e9``."""

    expected: str = "memory as Kubernetes writes it, such as 4Gi or 512Mi"

    def parse(self, text: str) -> str:
        """Check the form, and that it is no slip: a bare 4 is four bytes to Kubernetes."""
        word = one_word(text, self.expected)
        match = _QUANTITY.fullmatch(word)
        if match is None:
            raise ValueError(self.expected)
        number, suffix = match[1], match[2] or ""
        if suffix in _BYTES:
            size = float(number) * _BYTES[suffix]
        else:
            # What is left are an exponent, and suffixes for parts of a byte.
            size = 0.0 if suffix in ("n", "u", "m") else float(number + suffix)
        if size < 2**20:
            raise ValueError(f"{self.expected} ({word} is less than a megabyte)")
        return word

    def render(self, value: str) -> str:
        """Write it as it was."""
        return value


@dataclass(frozen=True, slots=True)
class GpuCount:
    """GPUs of a replica: a number, with the vendor's resource name in front if need be."""

    expected: str = "a number from 0 to 64, or a resource and a number such as amd.com/gpu:2"

    def parse(self, text: str) -> Gpu:
        """Read ``2`` or ``amd.com/gpu:2``."""
        resource, colon, count = one_word(text, self.expected).rpartition(":")
        if colon and not _RESOURCE.fullmatch(resource):
            raise ValueError(self.expected)
        if not _COUNT.fullmatch(count) or int(count) > MAX_GPUS:
            raise ValueError(self.expected)
        return Gpu(int(count), resource) if colon else Gpu(int(count))

    def render(self, value: Gpu) -> str:
        """Write the short form where the resource is the usual one."""
        return str(value.count) if value == Gpu(value.count) else f"{value.resource}:{value.count}"


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
class Duration:
    """A time span in seconds, written as ``90``, ``90s``, ``15m``, ``2h30m`` or ``1d``."""

    expected: str = "a time such as 90s, 15m, 2h30m or 1d"

    def parse(self, text: str) -> int:
        """Add the parts up."""
        word = one_word(text, self.expected)
        match = _DURATION.fullmatch(word) if len(word) <= 16 else None
        if match is None:
            raise ValueError(self.expected)
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups()[:4])
        total = int(match["plain"] or 0) + ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        if not 0 < total <= MAX_SECONDS:
            raise ValueError(self.expected)
        return total

    def render(self, value: int) -> str:
        """Write seconds."""
        return f"{value}s"


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
