"""The header ``Retry-After`` of a server that is busy, for API servers and registries.

Its value is a number of seconds or a date:
https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

_MOST = 86_400.0
_LONGEST = 40
"""Characters; the longest form of a date has 33."""


def seconds(headers: Mapping[str, str]) -> float | None:
    """Return how long the server wants to be left alone, from zero seconds to one day.

    A date is compared with the answer's own ``Date``: the server's clock may differ from ours.

    Args:
        headers: Headers of the answer, with case-insensitive names.

    Returns:
        None if there is no such header, or if it is malformed or negative. A date in the past is
        zero seconds.
    """
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdecimal():
        return _MOST if len(text) > len(str(_MOST)) else min(float(text), _MOST)
    if (until := http_date(text)) is None:
        return None
    now = http_date(headers.get("Date", ""))
    return min(max(0.0, until - (time.time() if now is None else now)), _MOST)


def http_date(text: str) -> float | None:
    """Return the seconds since the epoch of an HTTP date; None if it is not one."""
    if not text or len(text) > _LONGEST:
        return None
    try:
        found = parsedate_to_datetime(text)
        # All forms are in UTC, and two of them do not name it.
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
