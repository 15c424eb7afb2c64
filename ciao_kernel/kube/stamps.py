"""The time stamps that the kubelet puts before each line: 30 characters and a space, in UTC.

Nearly always: a node that is set to another zone writes ``+02:00`` for ``Z``, which is brought
into the one form here. So stamps sort as bytes do.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

STAMP = 31
"""Length of a stamp and its space."""

HEAD = 4096
"""So much of a line tells it from others: the stamp is in nanoseconds."""

_DISORDER = 20_000_000
# Nanoseconds that mean nothing: lines of stdout and stderr are stamped by two hands.
_FORM = "%Y-%m-%dT%H:%M:%S"
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{9})(Z|[+-]\d\d:\d\d) ")


def stamped(line: bytes) -> bool:
    """Tell whether a line begins with a stamp."""
    return _STAMP.match(line) is not None


def normal(line: bytes) -> bytes:
    """Return a line with its stamp in UTC; b"" if it has no stamp."""
    if not (found := _STAMP.match(line)):
        return b""
    if found[3] == b"Z":
        return line
    moment = datetime.fromisoformat((found[1] + found[3]).decode()).astimezone(UTC)
    return moment.strftime(_FORM).encode() + b"." + found[2] + b"Z " + line[found.end() :]


def full(text: str) -> bytes:
    """Return any RFC 3339 time as a stamp, without the space."""
    moment = datetime.fromisoformat(text)
    if fraction := re.search(r"[.,](\d+)", text):  # fromisoformat drops what is below microseconds
        digits = fraction[1][:9].ljust(9, "0")
    else:
        digits = "0" * 9
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return f"{moment.astimezone(UTC).strftime(_FORM)}.{digits}Z".encode()


def second_before(line: bytes) -> str:
    """Return one second before the whole second of a line, for ``sinceTime``."""
    return (_second(line) - timedelta(seconds=1)).strftime(_FORM) + "Z"


def later(line: bytes, seconds: int) -> bytes:
    """Return the beginning of the stamps that are so many seconds later."""
    return (_second(line) + timedelta(seconds=seconds)).strftime(_FORM).encode() + line[19:30]


def apart(one: bytes, other: bytes) -> int:
    """Return by how many nanoseconds the second line is later."""
    between = (_second(other) - _second(one)) // timedelta(seconds=1)
    return between * 1_000_000_000 + int(other[20:29]) - int(one[20:29])


def step_back(lines: list[bytes], high: bytes) -> int | None:
    """Return the number of the first line that is clearly older than one before it.

    Args:
        lines: With stamps.
        high: The highest stamp before them.
    """
    if lines[0] >= high and lines == sorted(lines):
        return None
    for number, line in enumerate(lines):
        if line >= high:
            high = line[: STAMP - 1]
        elif line[:22] != high[:22] and apart(line, high) > _DISORDER:
            return number
    return None


def clock(line: bytes) -> str:
    """Return a line's time of day, for a sentence."""
    return line[11:19].decode()


def span(one: bytes, other: bytes) -> str:
    """Return the time between two lines, for a sentence."""
    seconds = max(0, apart(one, other)) / 1e9
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _second(line: bytes) -> datetime:
    return datetime.fromisoformat(line[:19].decode())
