"""Turns the bytes that replicas write into readable lines.

Each line follows the name of its replica, ``[worker-0] step 20``; each replica has its own colour.
"""

from __future__ import annotations

import re

from ciao_kernel.model import Replica
from ciao_kernel.model.replica_colors import color_of
from ciao_kernel.visible_text import visible

_RESET = "\x1b[0m"
_SGR = re.compile(r"\x1b\[[0-9;:]*m")
# All terminal commands except colours: cursor moves, titles, clearing, bells.
_ESCAPES = re.compile(
    r"\x1b\[(?![0-9;:]*m)[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links and other strings
    r"|\x1b[ -/]*[0-Z\\-~]"
    r"|\x1b(?!\[[0-9;:]*m)"  # cut off
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"
)
_LINE_ENDS = {"\u2028": r"\u2028", "\u2029": r"\u2029"}
"""Line ends for a page, but not for a log: what follows could look like another replica's line."""
_CUT_OFF = re.compile(r"\x1b[^m]*\Z")
_PRINTABLE = bytes(range(0x20, 0x7F)) + b"\t\n"


def clean(line: str) -> str:
    """Return a line as a terminal would show it, with colours but without other commands."""
    line = _ESCAPES.sub("", line.removesuffix("\r"))
    for end, shown in _LINE_ENDS.items():
        line = line.replace(end, shown)
    if "\r" in line:
        # A progress bar overwrites itself: only its last text is visible.
        parts = line.split("\r")
        line = next((part for part in reversed(parts) if _SGR.sub("", part).strip()), "")
    return line


def plain(line: str) -> str:
    """Return a line without any escape sequence, for HTML and for files."""
    return _SGR.sub("", clean(line))


NO_LIMIT = 10**9
"""Line limit for terminals and pipes, which accept lines of any length."""


class Prefixer:
    """Puts replicas' names in front of their lines.

    Args:
        color: Colour the names.
        limit: Maximum number of characters shown of one line.
    """

    def __init__(self, *, color: bool, limit: int) -> None:
        self._color = color
        self.limit = limit
        self._prefixes: dict[Replica, str] = {}

    def prefix(self, replica: Replica) -> str:
        """Return ``[worker-0] `` with its colour, which is the same wherever the job is shown."""
        if replica not in self._prefixes:
            text = f"[{visible(str(replica))}] "
            if self._color:
                text = f"\x1b[{color_of(replica).sgr}m{text}{_RESET}"
            self._prefixes[replica] = text
        return self._prefixes[replica]

    def format(self, replica: Replica, data: bytes) -> str:
        """Return whole lines with their prefixes, each with its line end."""
        text = data.decode("utf-8", "replace")
        prefix = self.prefix(replica)
        text = text.removesuffix("\n")
        if _is_printable(data, text) and self._all_fit(text):
            # As below, but for all lines at once: most lines are like that.
            return prefix + text.replace("\n", f"\n{prefix}") + "\n"
        lines = text.split("\n")
        return "".join(f"{prefix}{self._line(line)}\n" for line in lines)

    def _all_fit(self, text: str) -> bool:
        return len(text) <= self.limit or max(map(len, text.split("\n"))) <= self.limit

    def _line(self, line: str) -> str:
        if not line.isprintable():
            line = clean(line)
        if len(line) > self.limit:
            kept = _CUT_OFF.sub("", line[: self.limit])
            line = f"{kept} … ({len(line):,} characters; all of them are in the log file)"
        if "\x1b" in line:
            line = line + _RESET if self._color else _SGR.sub("", line)
        return line


def _is_printable(data: bytes, text: str) -> bool:
    """Return whether lines have nothing to clean, but for tabs: of ASCII the bytes tell sooner."""
    if data.isascii():
        return not data.translate(None, _PRINTABLE)
    return text.replace("\n", "").replace("\t", "").isprintable()


_SHORT_ESCAPES = b'"\\\n\r\t\b\f'
"""Characters that JSON writes as two: a backslash and a letter or sign."""
_LONG_ESCAPES = bytes(set(range(0x20)) - set(_SHORT_ESCAPES))
r"""Characters that JSON writes as six: ``\u001b``."""


def wire_size(text: str) -> int:
    """Return the bytes of a text in a message: UTF-8 in JSON, which escapes some characters."""
    data = text.encode("utf-8", "replace")
    short = len(data) - len(data.translate(None, _SHORT_ESCAPES))
    long = len(data) - len(data.translate(None, _LONG_ESCAPES))
    return len(data) + short + 5 * long
