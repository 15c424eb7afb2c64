"""Writes marker lines to the output of the replica."""

from __future__ import annotations

import json
import os
from typing import Any


class MarkerWriter:
    """Writes the markers of a session.

    Args:
        nonce: Distinguishes them from those of others, and from lines of programs.
    """

    def __init__(self, nonce: str) -> None:
        self.mark = f"\x1eciao:{nonce} "

    def emit(self, **what: Any) -> None:
        """Write a marker with one call; a line that a program left open is ended before it."""
        data = f"\n{self.mark}{json.dumps(what, separators=(',', ':'))}\n".encode()
        while data:
            data = data[os.write(1, data) :]
