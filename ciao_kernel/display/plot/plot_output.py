"""Output of a cell with a job's curves: drawn live as SVG, and finally stored as PNG too.

JupyterLab shows no SVG in untrusted notebooks, and GitHub and PDFs show no SVG either: there the
PNG of the same bundle is shown.
"""

from __future__ import annotations

import asyncio
import base64
import time

from ciao_kernel.display.plot.curves import Curves
from ciao_kernel.display.plot.svg import svg
from ciao_kernel.display.publisher import Publisher

_TICK = 0.5
_SHARE = 0.1
"""Maximum share of time for drawing."""


class PlotOutput:
    """One output of a cell, which is replaced as curves grow.

    Args:
        curves: Curves to draw.
        publisher: Sends the output.
        display_id: ID of the output.
        rate: Maximum number of bytes per second.
    """

    def __init__(self, curves: Curves, publisher: Publisher, display_id: str, rate: float) -> None:
        self.curves = curves
        self._publisher = publisher
        self._display_id = display_id
        self._rate = rate
        self._drawn = 0.0
        self._pause = _TICK
        self._engraver: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Reserve the place in the cell, above the lines."""
        data = {"text/plain": self.curves.waiting()}
        self._publisher.display(data, self._display_id, update=False)

    def draw_if_due(self) -> int:
        """Draw the changes, from time to time; return the number of bytes sent."""
        if not self.curves.stale or time.monotonic() - self._drawn < self._pause:
            return 0
        began = time.monotonic()
        data = self._bundle()
        size = sum(map(len, data.values()))
        self._publisher.display(data, self._display_id, update=True)
        self._drawn = time.monotonic()
        self._pause = max(_TICK, size / self._rate, (self._drawn - began) / _SHARE)
        return size

    def closing_words(self) -> str:
        """Return the final lines. Front ends that never replace an output show only these."""
        return self.curves.summary() + self.curves.closing_words()

    async def keep(self) -> None:
        """Draw the final picture.

        After an interrupt the job must still be stopped: then the PNG follows in the background.
        """
        data = self._bundle()
        drawn = "image/svg+xml" in data
        data = data if drawn else {"text/plain": "%plot: nothing to draw"}
        self._publisher.display(data, self._display_id, update=True)
        if drawn:
            self._engraver = asyncio.get_running_loop().create_task(self._engrave(data))
            me = asyncio.current_task()
            if me is None or not me.cancelling():
                await asyncio.shield(self._engraver)

    def _bundle(self) -> dict[str, str]:
        picture = self.curves.picture()
        if picture is None:
            return {"text/plain": self.curves.waiting()}
        return {"text/plain": "\n".join(self.curves.lines()), "image/svg+xml": svg(picture)}

    async def _engrave(self, data: dict[str, str]) -> None:
        from ciao_kernel.display.plot.png import png

        picture = self.curves.picture()
        assert picture is not None
        image = await asyncio.to_thread(png, picture)
        whole = {**data, "image/png": base64.b64encode(image).decode("ascii")}
        # The PNG may have two dots per CSS pixel: without a size it would be shown too large.
        size = {"image/png": {"width": picture.width, "height": picture.height}}
        self._publisher.display(whole, self._display_id, update=True, metadata=size)
