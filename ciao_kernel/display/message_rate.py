"""The rate at which a cell may get text.

Jupyter Server drops messages when a kernel sends more than 1,000,000 bytes a second, counted over
three seconds (``ZMQChannelsHandler.iopub_data_rate_limit``): of a longer text nothing would be
shown.
"""

from __future__ import annotations

from collections.abc import Callable

_BURST = 0.5
"""Seconds whose bytes may be sent at once: of the three that leaves room."""


class MessageRate:
    """Counts what was sent; what may be sent grows with the time, up to a burst.

    Args:
        rate: Bytes a second, as in messages.
        clock: Seconds, monotonic.
    """

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self._rate, self._clock = rate, clock
        self.burst = rate * _BURST
        """The most bytes that may be sent at once."""
        self._credit, self._counted = self.burst, clock()

    def room(self) -> float:
        """Return the bytes that may be sent now."""
        now = self._clock()
        self._credit = min(self.burst, self._credit + self._rate * (now - self._counted))
        self._counted = now
        return self._credit

    def spend(self, size: int) -> None:
        """Count bytes that were sent; more than was allowed delays what follows, within limits."""
        self._credit = max(self._credit - size, -self.burst)
