"""Place of a job's curves in a cell: they are replaced as they grow, and finally kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from ciao_kernel.display.plotting import Plot
from ciao_kernel.display.publisher import Publisher
from ciao_kernel.display.redraw_pause import busy_pause

_TICK = 0.5
_SHARE = 0.1
"""Maximum share of time for drawing."""


class PlotOutput:
    """One output of a cell, which is replaced as curves grow.

    Args:
        plot: Curves to draw.
        publisher: Sends the output.
        display_id: ID of the output.
        rate: Maximum number of bytes per second.
    """

    def __init__(self, plot: Plot, publisher: Publisher, display_id: str, rate: float) -> None:
        self.plot = plot
        self._publisher = publisher
        self._display_id = display_id
        self._rate = rate
        self._drawn = 0.0
        self._pause = _TICK
        self._closed = False
        self._keeper: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Reserve the place in the cell, above the lines."""
        self._publisher.display(self.plot.draw() or {}, self._display_id, update=False)

    def draw_if_due(self, watched: float) -> int:
        """Draw the changes, from time to time; return the number of bytes sent.

        Args:
            watched: Seconds for which the running job has been shown.
        """
        pause = max(self._pause, busy_pause(watched))
        return self.draw() if time.monotonic() - self._drawn >= pause else 0

    def draw(self) -> int:
        """Draw the changes now; return the number of bytes sent."""
        began = time.monotonic()
        data = self.plot.draw()
        if data is None:
            return 0
        size = sum(map(len, data.values()))
        self._replace(data)
        self._drawn = time.monotonic()
        self._pause = max(_TICK, size / self._rate, (self._drawn - began) / _SHARE)
        return size

    def closing_text(self) -> str:
        """Return the final lines, and "" afterwards.

        Front ends that never replace an output show only these.
        """
        if self._closed:
            return ""
        self._closed = True
        return self.plot.summary() + self.plot.closing_text()

    async def keep(self) -> None:
        """Draw the final curves.

        After an interrupt the job must still be stopped: then what the notebook keeps follows in
        the background.
        """
        self.draw()
        self._keeper = asyncio.get_running_loop().create_task(self._keep())
        me = asyncio.current_task()
        if me is None or not me.cancelling():
            await asyncio.shield(self._keeper)

    async def _keep(self) -> None:
        data, metadata = await asyncio.to_thread(self.plot.keep)
        self._replace(data, metadata)

    def _replace(self, data: dict[str, str], metadata: Mapping[str, Any] | None = None) -> None:
        self._publisher.display(data, self._display_id, update=True, metadata=metadata)
