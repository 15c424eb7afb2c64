"""Curves of a job whose cell contains ``%plot``; not imported for other jobs.

While the job runs, a cell shows an image element with the SVG in it, whose width the page limits.
A narrow JupyterLab would cut an output of its own (``image/svg+xml``), and an SVG element in HTML
would leave bare texts in a notebook that is not trusted. What is kept is PNG alone: each place
shows it, JupyterLab without trust, GitHub and PDFs too.
"""

from __future__ import annotations

import base64
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

from ciao_kernel.display.plot.chart import PANELS, draw
from ciao_kernel.display.plot.metrics import Metrics
from ciao_kernel.display.plot.sparklines import brief, describe, unseen
from ciao_kernel.display.plot.svg import Picture, html, printable
from ciao_kernel.model import Job, Output

_SHARE = 0.25
"""Maximum share of time for reading; if replicas write faster, only a sample is read."""
_BURST = 1.0
_SAMPLE = 4096
"""Bytes of an output that are read if time is short."""
_SELDOM = 20
"""A metric named in at most this many lines of an output is still read in each of them."""
_EPOCH = re.compile(rb"^\W{0,20}epoch\b[^\n]{0,200}", re.I | re.M)


class Curves:
    """Metrics of a job that is followed (a :class:`ciao_kernel.display.plotting.Plot`).

    Args:
        job: The job.
        wishes: The requested metrics.
        clock: Seconds, monotonic.
    """

    def __init__(
        self, job: Job, wishes: tuple[str, ...], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stale = True
        """True if something changed since the last :meth:`draw`."""
        self._metrics = Metrics(wishes)
        self._job = job
        self._clock = clock
        self._credit = _BURST
        self._counted = clock()
        self._words = tuple(tuple(wish.encode().split(b"_")) for wish in self._metrics.wishes)
        self._lines = self._left_out = 0

    def output(self, event: Output) -> None:
        """Read the output of a replica, including its unfinished progress bar."""
        started = self._clock()
        self._credit = min(_BURST, self._credit + _SHARE * (started - self._counted))
        data = event.data
        self._lines += event.lines
        if self._credit <= 0 and len(data) > _SAMPLE:
            data = _sample(data, self._words)
            self._left_out += max(0, event.lines - data.count(b"\n"))
        if data:
            self._stale |= self._metrics.add(event.replica, data)
        if event.tail:
            self._stale |= self._metrics.peek(event.replica, event.tail)
        self._counted = self._clock()
        self._credit -= self._counted - started

    def lines(self) -> list[str]:
        """Return the curves as text, one line each."""
        return describe(self._metrics)

    def draw(self) -> dict[str, str] | None:
        """Return the curves by MIME type, or None if nothing changed since the last call."""
        if not self._stale:
            return None
        self._stale = False
        picture = self._picture()
        if picture is None:
            return {"text/plain": self._waiting()}
        return {"text/plain": self._text(), "text/html": html(picture)}

    def keep(self) -> tuple[dict[str, str], Mapping[str, Any]]:
        """Return the final curves and their metadata by MIME type; slow, because of the PNG."""
        from ciao_kernel.display.plot.png import png

        picture = self._picture()
        if picture is None:
            return {"text/plain": "%plot: nothing to draw"}, {}
        image = base64.b64encode(png(picture)).decode("ascii")
        # The PNG may have two dots per CSS pixel: without a size it would be shown too large.
        size = {"width": picture.width, "height": picture.height, "alt": printable(picture.title)}
        return {"text/plain": self._text(), "image/png": image}, {"image/png": size}

    def summary(self) -> str:
        """Return one line for front ends that never replace the first text by the picture."""
        words = brief(self._metrics)
        drawn = len(self._metrics.wishes) - len(self._metrics.missing)
        more = f"%plot: the first {PANELS} of {drawn} metrics are drawn.\n"
        return (f"%plot: {words}\n" if words else "") + (more if drawn > PANELS else "")

    def closing_text(self) -> str:
        """Return final remarks, with line feeds; "" if every line and metric was read."""
        words = ""
        if self._left_out > 0:
            read = self._lines - self._left_out
            words += f"%plot: the lines came too fast; {read:,} of {self._lines:,} were read.\n"
        missing = unseen(self._metrics)
        return words + (f"%plot: {missing}\n" if missing else "")

    def _picture(self) -> Picture | None:
        """Draw the current curves; None as long as there is no point."""
        names = [name for name in self._metrics.wishes if name not in self._metrics.missing]
        title = f"{' and '.join(names)} of {self._job.name}"
        return draw(self._metrics, title) if names else None

    def _text(self) -> str:
        return "\n".join(self.lines())

    def _waiting(self) -> str:
        """Return the text that is shown before the first picture."""
        wishes = self._metrics.wishes
        return f"%plot: {' and '.join(wishes)} {'are' if wishes[1:] else 'is'} drawn here"


def _sample(data: bytes, wishes: tuple[tuple[bytes, ...], ...]) -> bytes:
    """Return the last lines, and the few earlier lines that contain a rarely named metric.

    Each earlier line comes with the line before it, and the last line that names its epoch.
    """
    cut = data.find(b"\n", len(data) - _SAMPLE) + 1
    epochs = [match.span() for match in _EPOCH.finditer(data, 0, cut)]
    lower = data[:cut].lower()
    ends = {cut}
    for words in wishes:
        several = min((_ends(lower, word) for word in words), key=len)
        ends.update(several if len(several) <= _SELDOM else ())
    pieces: list[bytes] = []
    done = told = 0
    for end in sorted(ends):
        if (here := bisect_left(epochs, (end,))) > told:
            begin, stop = epochs[here - 1]
            pieces.append(data[begin:stop])
            told = here
        if end < cut:
            before = data.rfind(b"\n", 0, max(0, data.rfind(b"\n", 0, end))) + 1
            pieces.append(data[max(before, done, end - _SAMPLE) : end])
            done = end + 1
    return b"\n".join([*pieces, data[cut:]])


def _ends(data: bytes, word: bytes) -> list[int]:
    """Return the ends of lines in which a word begins; of many lines, only the first ones."""
    ends: list[int] = []
    at = data.find(word)
    while at >= 0 and len(ends) <= _SELDOM:
        if data[at - 1 : at].isalpha():
            at = data.find(word, at + 1)
            continue
        ends.append(data.find(b"\n", at))
        at = data.find(word, ends[-1])
    return ends
