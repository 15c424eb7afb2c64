"""Marker lines in the logs of warm replicas: where a run begins and ends.

The agent of a replica writes them (:mod:`.agent`), with a line feed before each: a program may
leave a line open. A reader therefore drops one empty line before a marker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_ANY = re.compile(rb"\x1eciao:[0-9a-f]{16} \{")
"""A marker of some session, for readers that do not know which one."""
_STAMP = rb"(?:[0-9T:.Z+-]{20,40} )?"
_STAMPED = re.compile(
    rb"^(?:" + _STAMP + rb"\n)?" + _STAMP + rb"\x1eciao:[0-9a-f]{16} \{[^\n]*\n?", re.MULTILINE
)
"""With the empty line before it; each line may have its time before it."""


def marker(nonce: str) -> bytes:
    """Return the first bytes of the markers of a session."""
    return f"\x1eciao:{nonce} ".encode()


class MarkReader:
    """Separates the markers in a log from the lines of programs.

    Args:
        nonce: The session whose markers are meant; "" means any.
    """

    def __init__(self, nonce: str = "") -> None:
        self._mark = re.compile(re.escape(marker(nonce)) + rb"\{") if nonce else _ANY
        self._held = b""

    def read(self, data: bytes) -> Iterator[bytes | dict[str, Any]]:
        """Yield the lines, and each marker as its content, in their order.

        An empty line at the end is held back: it may belong to a marker.

        Args:
            data: Whole lines; the last one of a log may lack its line feed.
        """
        data, self._held = self._held + data, b""
        at = 0
        while (start := self._find(data, at)) is not None:
            end = data.find(b"\n", start)
            end = len(data) if end < 0 else end
            text, line = data[at:start], data[start:end]
            at = end + 1
            if text == b"\n" or text.endswith(b"\n\n"):
                text = text[:-1]
            if text:
                yield text
            try:
                yield json.loads(line.partition(b" ")[2])
            except ValueError:
                yield line + b"\n"
        data = data[at:]
        if data == b"\n" or data.endswith(b"\n\n"):
            data, self._held = data[:-1], b"\n"
        if data:
            yield data

    def rest(self) -> bytes:
        """Return what is held back, at the end of a log."""
        held, self._held = self._held, b""
        return held

    def _find(self, data: bytes, at: int) -> int | None:
        """Return where the first line from a place on begins that is a marker."""
        for match in self._mark.finditer(data, at):
            if not match.start() or data[match.start() - 1] == 10:
                return match.start()
        return None


def without(data: bytes) -> bytes:
    """Return a part of a log without its markers; each line may have its time before it."""
    return _STAMPED.sub(b"", data)


def is_whole(data: bytes) -> bool:
    """Return whether a log still has its beginning: a replica is ready before its first run."""
    first = next((part for part in MarkReader().read(data) if isinstance(part, dict)), {})
    return first.get("ev") == "ready"


def lines(data: bytes, run: int | None = None) -> bytes:
    """Return the lines of a log without its markers, or those of one run.

    Args:
        data: The log, which may have lost its beginning.
        run: Number of the run; None means all lines.
    """
    reader = RunReader(run)
    return reader.read(data) + reader.rest()


class RunReader:
    """Takes the markers out of a log, and with a number the lines of all other runs.

    Args:
        run: Number of the run; None means all lines.
    """

    def __init__(self, run: int | None = None) -> None:
        self._run, self._reader = run, MarkReader()
        self._inside, self._is_cut = run is None, run is not None
        self._before = bytearray()
        """Lines whose run the first marker tells: a log may have lost its beginning."""

    def read(self, data: bytes) -> bytes:
        """Return the lines among the next ones of the log.

        Args:
            data: Whole lines; the last one of the log may lack its line feed.
        """
        found, run = bytearray(), self._run
        for part in self._reader.read(data):
            if isinstance(part, bytes):
                found += part if self._inside else b""
                self._before += part if self._is_cut else b""
            elif run is not None and part.get("ev") in ("ready", "begin", "end"):
                if self._is_cut and part["ev"] == "end" and part.get("id") == run:
                    found += self._before  # its begin is not in the log any more
                self._inside = part["ev"] == "begin" and part.get("id") == run
                self._is_cut = False
                self._before.clear()
        return bytes(found)

    def rest(self) -> bytes:
        """Return what is held back, at the end of the log."""
        return self._reader.rest() if self._inside else b""
