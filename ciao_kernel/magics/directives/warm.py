"""The directive ``%warm``, which keeps the replicas of a job for the next run of its cell."""

from __future__ import annotations

from dataclasses import dataclass

from ciao_kernel.magics import stored_header
from ciao_kernel.magics.directive import Directive
from ciao_kernel.magics.numeric_types import Duration
from ciao_kernel.magics.value_types import Flag

DEFAULT_SECONDS = 600
_ANY = Duration()


@dataclass(frozen=True, slots=True)
class WarmTime(Flag):
    """A flag that may have a time: how long replicas wait for the next run."""

    @property
    def expected(self) -> str:
        """Name the forms."""
        return f"nothing, or {_ANY.expected}"

    def names(self) -> tuple[str, ...]:
        """Return common times; others are valid too."""
        return ("10m", "30m", "1h")

    def parse(self, text: str) -> int | None:
        """Return seconds; None if the value is ``false``."""
        word = text.strip().lower()
        if word in ("", "true", "yes"):
            return DEFAULT_SECONDS
        if word in ("false", "no"):
            return None
        try:
            return _ANY.parse(text)
        except ValueError:
            raise ValueError(self.expected) from None

    def render(self, value: int | None) -> str:
        """Return the time in its largest unit, ``10m``."""
        if value is None:
            return "false"
        for size, unit in ((3600, "h"), (60, "m")):
            if value % size == 0:
                return f"{value // size}{unit}"
        return f"{value}s"


def directives() -> list[Directive]:
    """Return the entries of the table, in the order of display."""
    return [
        Directive(
            "warm",
            "warm",
            WarmTime(),
            "Keep the replicas for this time after each run, 10 minutes without a value: the next "
            "run with the same header starts in them at once, in a fresh process.",
            "%warm=10m",
        ),
    ]


def is_warm(header: str) -> bool:
    """Return whether a job's stored header keeps its replicas, so that its logs have markers.

    Args:
        header: See :mod:`ciao_kernel.magics.stored_header`.
    """
    return stored_header.text(header, "warm") is not None
