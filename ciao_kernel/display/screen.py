"""The newest lines of a terminal: whether its window still shows a traceback."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from ciao_kernel.display.lines import Prefixer, plain
from ciao_kernel.model import Output, Replica

_MOST = 200
"""Maximum number of lines remembered; a window is rarely higher."""


class Screen:
    """Remembers the newest lines that were written to a terminal.

    Args:
        prefixer: Formats the lines.
    """

    def __init__(self, prefixer: Prefixer) -> None:
        self._prefixer = prefixer
        self._lines: deque[tuple[Replica | None, bytes, int]] = deque(maxlen=_MOST)

    def output(self, event: Output) -> None:
        """Remember lines of a replica, or one line that stands for several of them."""
        lines = event.data.removesuffix(b"\n").rsplit(b"\n", _MOST)[-_MOST:]
        count = event.lines if len(lines) == 1 else 1
        self._lines.extend((event.replica, line, count) for line in lines)

    def text(self, text: str) -> None:
        """Remember another text."""
        lines = text.encode("utf-8", "replace").removesuffix(b"\n").split(b"\n")
        self._lines.extend((None, line, 1) for line in lines)

    def shows(
        self, replica: Replica, lines: Mapping[int, bytes], *, width: int, height: int
    ) -> bool:
        """Return whether a window still shows some lines of a replica.

        Args:
            replica: The replica.
            lines: Its lines by their place counted from its last line, which is 1.
            width: Width of the window, in characters.
            height: Number of rows above what is written next.
        """
        from rich.cells import cell_len  # late: only the error of a failed job needs it

        place, rows, found = 0, 0, 0
        for who, line, count in reversed(self._lines):
            shown = self._prefixer.format(who, line) if who else line.decode("utf-8", "replace")
            text = plain(shown.rstrip("\n")).expandtabs()
            rows += max(1, -(-cell_len(text) // width))
            if rows > height:
                return False
            if who == replica:
                place += count
                if place in lines:
                    if lines[place] != line:
                        return False
                    found += 1
            if found == len(lines):
                return True
        return False
