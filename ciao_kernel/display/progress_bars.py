"""Places of long steps: an output of a cell for each step, or one line of a terminal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from ciao_kernel.display import progress_text
from ciao_kernel.display.publisher import Publisher
from ciao_kernel.model import Notice, Progress
from ciao_kernel.visible_text import visible

_TICK = 0.25
"""Seconds between two updates of a bar, whoever sends the events."""
_FIRST_LINE, _LONGEST_PAUSE = 20.0, 120.0
"""Seconds of a step until its first line in a pipe, and the most between two of them."""


@dataclass(slots=True)
class _Output:
    """Place of one step: the ID of its output, and when it was last drawn."""

    display_id: str
    drawn: float


class NotebookBars:
    """One output for each step, updated in place; it becomes the step's last line.

    Args:
        publisher: Sends the output.
        clock: Seconds, monotonic.
    """

    def __init__(self, publisher: Publisher, clock: Callable[[], float] = time.monotonic) -> None:
        self._publisher = publisher
        self._clock = clock
        self._outputs: dict[str, _Output] = {}

    def begin(self, notice: Notice) -> int:
        """Show the sentence that a step begins with; return the number of bytes sent."""
        place = self._outputs[notice.step] = _Output(_new_id(), self._clock())
        text, html = visible(notice.text), progress_text.notice_html(notice.text)
        data = {"text/plain": text, "text/html": html}
        self._publisher.display(data, place.display_id, update=False)
        return len(text) + len(html)

    def show(self, event: Progress) -> int:
        """Show how far a step is, unless it was shown just now; return the number of bytes sent."""
        known = self._outputs.get(event.step)
        now = self._clock()
        if known is None:
            if event.over:
                return 0
            known = self._outputs[event.step] = _Output(_new_id(), now)
            return self._send(event, known, update=False)
        if event.over:
            del self._outputs[event.step]
        elif now - known.drawn < _TICK:
            return 0
        known.drawn = now
        return self._send(event, known, update=True)

    def _send(self, event: Progress, place: _Output, *, update: bool) -> int:
        text, html = progress_text.line(event), progress_text.html(event)
        if event.failed:
            text = html = ""
        elif not update:
            text = progress_text.announcement(event)
        data = {"text/plain": text, "text/html": html}
        self._publisher.display(data, place.display_id, update=update)
        return len(text) + len(html)


def _new_id() -> str:
    import secrets  # not for a terminal

    return f"ciao-{secrets.token_hex(8)}"


class TerminalBar:
    """The last line of a terminal, which is written again for each event of a step.

    Nothing is written into a pipe, or for a terminal that cannot remove a line, which
    :meth:`is_due` is for. The last line of a step is left to the caller.

    Args:
        stream: The terminal.
        clock: Seconds, monotonic.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._draws = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = False
        self._drawn = -_TICK
        self._due: dict[str, float] = {}
        """Seconds of each step at which its next line is due."""

    def is_due(self, event: Progress) -> bool:
        """Return whether a line that stays must tell that a step goes on, for it has no bar.

        The longer it takes, the rarer are its lines: they fill the log of a nightly job.
        """
        if event.over or self._draws:
            self._due.pop(event.step, None)
            return False
        if event.seconds < self._due.get(event.step, _FIRST_LINE):
            return False
        self._due[event.step] = event.seconds + min(event.seconds, _LONGEST_PAUSE)
        return True

    def show(self, event: Progress) -> None:
        """Write how far a step is; remove the line when the step has ended."""
        if event.over:
            self.clear()
        elif self._draws and self._clock() - self._drawn >= _TICK:
            import shutil

            from rich.cells import set_cell_size

            # A line that wraps could not be overwritten.
            room = max(1, shutil.get_terminal_size().columns - 1)
            line = set_cell_size(progress_text.line_with_bar(event), room).rstrip()
            self._stream.write(f"\r\x1b[2K{line}")
            self._stream.flush()
            self._shown, self._drawn = True, self._clock()

    def clear(self) -> None:
        """Remove the line: other output follows."""
        if self._shown:
            self._shown = False
            self._stream.write("\r\x1b[2K")
            self._stream.flush()
