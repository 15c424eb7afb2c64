"""Place in a cell where lines are seen that are not text yet, while the job runs.

They are the newest lines of a long log, and the lines from a traceback on.

It is one output that is updated in place, in a box of fixed height. It is empty in the end: the
lines that stay follow as text, which every front end shows, also one that never updates outputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from html import escape

from ciao_kernel.display.excerpt import Excerpt
from ciao_kernel.display.held_tracebacks import HeldTracebacks
from ciao_kernel.display.lines import Prefixer
from ciao_kernel.display.publisher import Publisher
from ciao_kernel.display.redraw_pause import busy_pause
from ciao_kernel.model import Job, Output

_TICK = 0.25
"""Least seconds between two updates; together with the table and the text ten messages a second."""
_MOST_BYTES = 20_000
"""Maximum bytes of the lines in the box."""
_PLAIN_LINES = 10
_LIMIT = 500
"""Maximum characters of one line in the box."""
# A reversed column keeps its scroll position at its end, where the newest line is.
_BOX = (
    "max-height:18em;overflow:auto;display:flex;flex-direction:column-reverse;"
    "border-left:3px solid var(--jp-border-color2, #bdbdbd);padding-left:.5em"
)


class LiveLines:
    """One output of a cell with the newest lines.

    Args:
        job: The job.
        publisher: Sends the output.
        display_id: ID of the output.
        most: Maximum number of lines.
        rate: Maximum number of bytes per second.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        job: Job,
        publisher: Publisher,
        display_id: str,
        most: int,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job = job
        self._publisher = publisher
        self._display_id = display_id
        self._most = most
        self._rate = rate
        self._clock = clock
        self._prefixer = Prefixer(color=False, limit=_LIMIT)
        self.begun = False
        """Whether it shows something."""
        self.urgent = False
        """Whether the next lines are shown soon, however old the job is."""
        self._count = 0
        self._drawn = 0.0
        self._pause = 0.0

    def draw_if_due(self, held: Excerpt, tracebacks: HeldTracebacks, watched: float) -> int:
        """Show the newest held lines, from time to time; return the number of bytes sent.

        Args:
            held: Lines of a long log.
            tracebacks: Lines from a traceback on.
            watched: Seconds for which the running job has been shown.
        """
        count = held.count + tracebacks.count
        pause = self._pause if self.urgent else max(self._pause, busy_pause(watched))
        if count == self._count or self._clock() - self._drawn < pause:
            return 0
        self._count, self.urgent = count, False
        if not self.begun:
            # A front end that never updates an output keeps this text.
            self._show({"text/plain": self._announcement() if held else "…"})
            self.begun = True
        lines = self._newest_lines([*held.newest(), *tracebacks.newest()])
        text = escape("\n".join(lines))
        html = f'<div style="{_BOX}"><pre style="margin:0">{text}</pre></div>'
        plain = "\n".join(["…", *lines[-_PLAIN_LINES:]])
        self._show({"text/plain": plain, "text/html": html}, update=True)
        size = len(plain) + len(html)
        self._drawn, self._pause = self._clock(), max(_TICK, size / self._rate)
        return size

    def clear(self) -> None:
        """Empty the output: its lines have become text."""
        if self.begun:
            self._show({"text/plain": "", "text/html": ""}, update=True)

    def _newest_lines(self, newest: Sequence[Output]) -> Sequence[str]:
        # One update may cost at most two seconds of the rate.
        room = min(_MOST_BYTES, int(2 * self._rate))
        found: list[str] = []
        for line in self._backwards(reversed(newest)):
            room -= len(line.encode("utf-8", "replace")) + 1
            if len(found) == self._most or (found and room < 0):
                break
            found.append(line)
        return found[::-1]

    def _backwards(self, newest: Iterable[Output]) -> Iterable[str]:
        for event in newest:
            kept = event.data.removesuffix(b"\n").rsplit(b"\n", self._most)[-self._most :]
            for line in reversed(kept):
                yield self._prefixer.format(event.replica, line).removesuffix("\n")

    def _announcement(self) -> str:
        text = "… more lines; the newest of them follow at the end"
        if not self._job.logs_kept:  # the command would soon find nothing
            return f"{text} …"
        return f"{text}. `%ciao logs {self._job.reference}` shows all …"

    def _show(self, data: dict[str, str], *, update: bool = False) -> None:
        self._publisher.display(data, self._display_id, update=update)
