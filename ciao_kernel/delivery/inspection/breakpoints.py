"""Markers of processes that wait at a prompt, in the logs of their replicas.

:mod:`.debug_wire` writes them as whole lines, but a program may have left a line open before one. A
reader takes each marker out with its line feed, so the lines of the program are what it wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ciao_kernel.delivery.inspection import debug_wire
from ciao_kernel.model import Replica

_BEGIN = debug_wire.MARKER.encode()
_MARKER = re.compile(rb"(?:(?<![^\n])\[\d+\] )?" + re.escape(_BEGIN) + rb"(\{[^\n]*)\n?")
"""With the number that a process of torchrun has at the begin of each line."""
_STAMPED = re.compile(rb"^[0-9T:.Z+-]{20,40} " + re.escape(_BEGIN) + rb"\{[^\n]*\n?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """A process that waits for a front end."""

    pid: int
    at: str
    """Place in the program, such as ``line 17 in average``. Foreign text."""
    again: bool = False
    """True if a front end was there, and has gone."""
    asked: bool = False
    """True if a person has asked for the stop, and opens the prompt."""
    over: bool = False
    """True if the process goes on: it waits no longer."""
    failed: str = ""
    """The error that ends the process afterwards (``%onError=debug``). Foreign text."""
    rank: str = ""
    """Its number in its replica, if that has several: digits."""

    def name(self, replica: Replica) -> str:
        """Return the name of the process, ``worker-0`` or ``worker-0.1``.

        Args:
            replica: Its replica.
        """
        return f"{replica}.{self.rank}" if self.rank else str(replica)


class MarkerFilter:
    """Takes the markers out of the log of one replica."""

    def __init__(self) -> None:
        self._open = b""
        """A line that the program had left open before a marker."""

    def read(self, data: bytes, tail: bytes = b"") -> tuple[bytes, bytes, list[Breakpoint]]:
        """Return lines and the unfinished line without the markers, and what these say.

        Args:
            data: Whole lines; the last one of a log may lack its line feed.
            tail: The unfinished line after them.
        """
        found: list[Breakpoint] = []
        if data and (self._open or _BEGIN in data):
            whole = data.endswith(b"\n")
            found = list(_read(data))
            data, self._open = self._open + _MARKER.sub(b"", data), b""
            if whole and not data.endswith(b"\n"):
                cut = data.rfind(b"\n") + 1
                data, self._open = data[:cut], data[cut:]
        return data, self._open + tail.partition(_BEGIN)[0], found

    def rest(self) -> bytes:
        """Return the open line, at the end of a log."""
        line, self._open = self._open, b""
        return line


def without(data: bytes) -> bytes:
    """Return a part of a log without its markers; each line may have its time before it."""
    if _BEGIN not in data:
        return data
    return _MARKER.sub(b"", _STAMPED.sub(b"", data))


def read_rank(said: object) -> str:
    """Return the number of a process as it has told it; "" if it is none."""
    is_rank = isinstance(said, str) and said.isascii() and said.isdigit() and len(said) < 5
    return str(said) if is_rank else ""


def _read(data: bytes) -> Iterator[Breakpoint]:
    for match in _MARKER.finditer(data):
        try:
            one = json.loads(match[1])
            pid, at = one["pid"], one["at"]
            again, asked, over = (one[name] for name in ("again", "asked", "over"))
            # Replicas of an older version do not say these.
            failed, rank = one.get("failed", ""), one.get("rank", "")
        except (ValueError, KeyError, TypeError, RecursionError):
            continue  # a program has written something like it
        types = [type(pid), type(at), *map(type, (again, asked, over, failed, rank))]
        if types == [int, str, bool, bool, bool, str, str] and 0 < pid < 1 << 31:
            yield Breakpoint(pid, at[:200], again, asked, over, failed[:200], read_rank(rank))
