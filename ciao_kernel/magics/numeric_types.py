"""Types of values for counts, amounts and durations; value_types.py has the other types."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ciao_kernel.magics.shell_words import one_word
from ciao_kernel.model import Gpu

MAX_COUNT = 1000
"""Maximum replicas per role. The operator has no limit, and a typing error can be expensive."""

MAX_GPUS = 64
"""Maximum GPUs per replica."""

MAX_SECONDS = 10**9
"""Longest time span: thirty years, longer than anybody needs, and small enough for every API."""

_COUNT = re.compile(r"\+?[0-9]{1,9}")
_QUANTITY = re.compile(
    r"([0-9]{1,15}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})([EPTGMK]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?"
)
_BYTES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18} | {
    f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", 1)
}
_DURATION = re.compile(
    r"(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?|(?P<plain>[0-9]+)"
)
_RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Count:
    """A number of replicas or processes."""

    low: int = 0
    high: int = MAX_COUNT

    @property
    def expected(self) -> str:
        """Describe the range."""
        return f"a whole number from {self.low} to {self.high}"

    def parse(self, text: str) -> int:
        """Parse a number; digits of other scripts, which int() accepts, are rejected."""
        word = one_word(text, self.expected)
        if not _COUNT.fullmatch(word) or not self.low <= int(word) <= self.high:
            raise ValueError(self.expected)
        return int(word)

    def render(self, value: int) -> str:
        """Return plain digits."""
        return str(value)


@dataclass(frozen=True, slots=True)
class Cpus:
    """Processors in Kubernetes' notation, kept as written: ``2``, ``0.5``, ``500m``."""

    expected: str = "processors in Kubernetes' notation, such as 2, 0.5 or 500m"

    def parse(self, text: str) -> str:
        """Check the form. Kubernetes also accepts 4Gi processors, which is always an error."""
        word = one_word(text, self.expected)
        match = _QUANTITY.fullmatch(word)
        if match is None or not float(match[1]) or match[2] not in (None, "m"):
            raise ValueError(self.expected)
        return word

    def render(self, value: str) -> str:
        """Return the value unchanged."""
        return value


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory in Kubernetes' notation, kept as written: ``4Gi``, ``512Mi``, ``1e9``."""

    expected: str = "memory in Kubernetes' notation, such as 4Gi or 512Mi"

    def parse(self, text: str) -> str:
        """Check the form and the size: a plain 4 means four bytes in Kubernetes."""
        word = one_word(text, self.expected)
        match = _QUANTITY.fullmatch(word)
        if match is None:
            raise ValueError(self.expected)
        number, suffix = match[1], match[2] or ""
        if suffix in _BYTES:
            size = float(number) * _BYTES[suffix]
        else:
            # The remaining forms are an exponent, and suffixes for fractions of a byte.
            size = 0.0 if suffix in ("n", "u", "m") else float(number + suffix)
        if size < 2**20:
            raise ValueError(f"{self.expected} ({word} is less than a megabyte)")
        return word

    def render(self, value: str) -> str:
        """Return the value unchanged."""
        return value


@dataclass(frozen=True, slots=True)
class GpuCount:
    """GPUs of a replica: a number, with an optional resource name of the vendor before it."""

    expected: str = "a number from 0 to 64, or a resource and a number such as amd.com/gpu:2"

    def parse(self, text: str) -> Gpu:
        """Parse ``2`` or ``amd.com/gpu:2``."""
        resource, colon, count = one_word(text, self.expected).rpartition(":")
        if colon and not _RESOURCE.fullmatch(resource):
            raise ValueError(self.expected)
        if not _COUNT.fullmatch(count) or int(count) > MAX_GPUS:
            raise ValueError(self.expected)
        return Gpu(int(count), resource) if colon else Gpu(int(count))

    def render(self, value: Gpu) -> str:
        """Return the short form if the resource is the default."""
        return str(value.count) if value == Gpu(value.count) else f"{value.resource}:{value.count}"


@dataclass(frozen=True, slots=True)
class Duration:
    """A time span in seconds, written as ``90``, ``90s``, ``15m``, ``2h30m`` or ``1d``."""

    expected: str = "a time such as 90s, 15m, 2h30m or 1d"

    def parse(self, text: str) -> int:
        """Return the sum of the parts."""
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
        """Return the time in seconds, ``90s``."""
        return f"{value}s"
