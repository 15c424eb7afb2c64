"""The number of its process before each line; frameworks/torchrun.py has this text in a program."""

from __future__ import annotations

import io
import os
import re
import sys


class _Marked(io.TextIOWrapper):
    """Writes whole lines, each behind the number of its process; states of a bar have it too."""

    BLANK = r"(?:[^\S\r\n]|\x1b\[[\d;?]*[A-Za-z])*"
    # A state that shows nothing gets no number: it only clears the line.
    START = re.compile(rf"\n(?=[\s\S])|\r(?={BLANK}[^\s\x1b])")
    END = re.compile(rf"(?:\n|\r{BLANK})\Z")

    def __init__(self, stream: io.TextIOWrapper, last: list[_Marked]) -> None:
        self.mark = f"[{os.environ.get('LOCAL_RANK')}] "
        self.end = "\n"  # of its text: a line feed, a carriage return, or "" inside a line
        self.waits = False  # for the rest of a line: the file does not have this text yet
        self.last = last  # the stream that has written last to the file
        last[:] = [self]
        self.stream = stream  # its end would close the file, which both write to
        super().__init__(stream.buffer, stream.encoding, stream.errors, line_buffering=True)

    def write(self, text: str) -> int:
        if text:
            other = self.last[0]
            before = self.end if self.waits or other is self else other.end or "\n"
            body, end = before + text, self.END.search(before + text)
            # A template would be compiled, for which modules are missing at the end of Python.
            body = self.START.sub(lambda start: start[0] + self.mark, body)
            super().write(body[len(before) :])
            self.end = end[0][0] if end else ""
            self.waits = "\n" not in text and "\r" not in text
            if not self.waits:
                self.last[0] = self
        return len(text)

    def flush(self) -> None:
        super().flush()
        if self.waits:
            self.waits = False
            self.last[0] = self


def mark_lines() -> None:
    """Mark the lines of this process, from now on."""
    same = os.path.sameopenfile(1, 2)
    last: list[_Marked] = []
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        marked = _Marked(stream, last if same else [])
        if getattr(sys, f"__{name}__") is stream:
            setattr(sys, f"__{name}__", marked)  # it stays, and a program may restore it
        setattr(sys, name, marked)
