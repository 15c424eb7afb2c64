"""Time stamps that the kubelet writes before each line: 30 characters and a space, in UTC.

A node in another time zone writes an offset like ``+02:00`` instead of ``Z``; such stamps are
converted to UTC here. So stamps can be sorted as bytes.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

STAMP = 31
"""Length of a stamp and its space."""

HEAD = 4096
"""Bytes that are enough to identify a line, since the stamp is in nanoseconds."""

_DISORDER = 20_000_000
# Nanoseconds of normal disorder: lines of stdout and stderr get their stamps independently.
_FORM = "%Y-%m-%dT%H:%M:%S"
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{9})(Z|[+-]\d\d:\d\d) ")
_LINE = re.compile(rb"^(%b)([^\n]*\n?)" % _STAMP.pattern.replace(b"(", b"(?:"), re.MULTILINE)


def stamped(line: bytes) -> bool:
    """Return whether a line begins with a stamp."""
    return _STAMP.match(line) is not None


def normal(line: bytes) -> bytes:
    """Return a line with its stamp in UTC; b"" if it has no stamp."""
    if not (found := _STAMP.match(line)):
        return b""
    if found[3] == b"Z":
        return line
    moment = datetime.fromisoformat((found[1] + found[3]).decode()).astimezone(UTC)
    return moment.strftime(_FORM).encode() + b"." + found[2] + b"Z " + line[found.end() :]


def lines(answer: bytes, *, stamps: bool) -> bytes:
    """Return the lines of an answer, without the kubelet's own words, which have no stamp.

    Args:
        answer: Lines with stamps.
        stamps: Whether the lines keep their stamps.
    """
    found: list[tuple[bytes, bytes]] = _LINE.findall(answer)
    return b"".join(stamp + text if stamps else text for stamp, text in found)


def full(text: str) -> bytes:
    """Return any RFC 3339 time as a stamp, without the space."""
    moment = datetime.fromisoformat(text)
    if fraction := re.search(r"[.,](\d+)", text):  # fromisoformat drops digits below microseconds
        digits = fraction[1][:9].ljust(9, "0")
    else:
        digits = "0" * 9
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return f"{moment.astimezone(UTC).strftime(_FORM)}.{digits}Z".encode()


def second_before(line: bytes) -> str:
    """Return the time one second before a line's whole second, for ``sinceTime``."""
    return (_second(line) - timedelta(seconds=1)).strftime(_FORM) + "Z"


def apart(one: bytes, other: bytes) -> int:
    """Return the nanoseconds from the first line to the second."""
    between = (_second(other) - _second(one)) // timedelta(seconds=1)
    return between * 1_000_000_000 + int(other[20:29]) - int(one[20:29])


def step_back(lines: list[bytes], high: bytes) -> int | None:
    """Return the index of the first line that is clearly older than a line before it.

    Args:
        lines: Lines with stamps.
        high: Highest stamp before these lines.
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
