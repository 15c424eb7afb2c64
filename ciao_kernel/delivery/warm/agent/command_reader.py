"""Reads the commands of the kernel: lines of JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any


class CommandReader:
    """Reads commands from a descriptor.

    Args:
        source: The descriptor.
    """

    def __init__(self, source: int) -> None:
        self.source = source
        self.ended = False
        self._text = bytearray()

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the commands that have arrived whole."""
        data = os.read(self.source, 1 << 20)
        if not data:
            self.ended = True
            return
        start = len(self._text)
        self._text += data
        while (end := self._text.find(b"\n", start)) >= 0:
            line = bytes(self._text[:end])
            del self._text[: end + 1]
            start = 0
            if line.strip() and (ask := _parsed(line)) is not None:
                yield ask


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return a command; None for the rest of one that was cut, which is sent again."""
    try:
        ask = json.loads(line)
        return ask if isinstance(ask, dict) and "op" in ask else None
    except ValueError:
        return None
