"""Formatting of times for people."""

from __future__ import annotations

from datetime import datetime

_UNKNOWN = "–"


def clock_time(seconds: float) -> str:
    """Return a time in the local time zone, ``Nov 21 14:02:11``.

    The date is always included, because a saved notebook may be read on any day.
    """
    return datetime.fromtimestamp(seconds).strftime("%b %d %H:%M:%S") if seconds else _UNKNOWN


def age(seconds: float) -> str:
    """Return a time span in the format of kubectl: ``45s``, ``12m``, ``3h``, ``2d``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def span(seconds: float) -> str:
    """Return a duration with its two largest units: ``45s``, ``1m 20s``, ``2h 5m``, ``3d 4h``."""
    total = max(0, int(seconds))
    units = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
    for (size, unit), (small, minor) in zip(units, (*units[1:], (1, "")), strict=True):
        if total >= size:
            rest = total % size // small
            return f"{total // size}{unit}" + (f" {rest}{minor}" if rest and minor else "")
    return "0s"
