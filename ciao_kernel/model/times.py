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
