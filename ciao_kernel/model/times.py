"""Times as people read them."""

from __future__ import annotations

from datetime import datetime

_UNKNOWN = "–"


def clock_time(seconds: float) -> str:
    """A moment as the user's clock shows it, ``Nov 21 14:02:11``.

    The date is always there: a notebook that is saved may be read on any day.
    """
    return datetime.fromtimestamp(seconds).strftime("%b %d %H:%M:%S") if seconds else _UNKNOWN


def age(seconds: float) -> str:
    """A time span as kubectl writes it: ``45s``, ``12m``, ``3h``, ``2d``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"
