"""When the first line of each replica is in the cell."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ciao_kernel.model import Event, Output
from tests.helpers.jobs import Recorder


class FirstLines(Recorder):
    """A display that notes how long after its creation each replica has written something."""

    def __init__(self) -> None:
        super().__init__()
        self._since = time.monotonic()
        self.seconds: dict[str, float] = {}

    def show(self, event: Event) -> None:
        super().show(event)
        if isinstance(event, Output):
            self.seconds.setdefault(str(event.replica), time.monotonic() - self._since)


def told(cells: Sequence[FirstLines]) -> str:
    """Return p50 and p95 of the first line of a cell, of each replica, and of the last replica."""
    ways = {
        "first line of any replica": [min(one.seconds.values()) for one in cells],
        "of each": [seconds for one in cells for seconds in one.seconds.values()],
        "of the last": [max(one.seconds.values()) for one in cells],
    }
    return "; ".join(f"{name} {_percentiles(some)}" for name, some in ways.items())


def _percentiles(seconds: Sequence[float]) -> str:
    some = sorted(seconds)
    return f"p50 {some[len(some) // 2]:.2f} s, p95 {some[int(len(some) * 0.95)]:.2f} s"
