"""The number of its process before each line, as under ciao's torchrun."""

from __future__ import annotations

import io
import os
import sys


class _Marked(io.TextIOWrapper):
    """Writes whole lines, each with the number of its process, as under ciao's torchrun."""

    inside = False

    def write(self, text: str) -> int:
        if text:
            mark = f"[{os.environ.get('LOCAL_RANK')}] "
            before = "" if self.inside else mark
            self.inside = not text.endswith("\n")
            body = text if self.inside else text[:-1]
            body = before + body.replace("\n", "\n" + mark)
            super().write(body if self.inside else body + "\n")
        return len(text)


def mark_lines() -> None:
    """Mark the lines of this process, from now on."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        setattr(
            sys,
            name,
            _Marked(stream.buffer, stream.encoding, stream.errors, line_buffering=True),
        )
