"""The rate at which a cell may get text.

Jupyter Server drops messages when a kernel sends more than 1,000,000 bytes a second, counted over
three seconds (``ZMQChannelsHandler.iopub_data_rate_limit``): of a longer text nothing would be
shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_BURST = 0.5
"""Seconds whose bytes may be sent at once: of the three that leaves room."""
_SPAN = 3.0
_AT_ONCE = 2.8
"""Seconds whose bytes may be sent within that span where lines cannot wait. The rate may be the
server's own limit, and the final table and curves are sent too."""


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
        self._recent: deque[tuple[float, int]] = deque()

    def room(self) -> float:
        """Return the bytes that may be sent now."""
        now = self._clock()
        self._credit = min(self.burst, self._credit + self._rate * (now - self._counted))
        self._counted = now
        return self._credit

    def room_at_once(self) -> float:
        """Return the bytes that may be sent now if they cannot wait; what follows them waits."""
        self._forget()
        return self._rate * _AT_ONCE - sum(size for _, size in self._recent)

    def spend(self, size: int) -> None:
        """Count bytes that were sent; more than was allowed delays what follows."""
        self._credit -= size
        self._note(size)

    def charge(self, size: int) -> None:
        """Count bytes of another output, such as a large picture: it delays, but within limits."""
        self._credit = min(self._credit, max(self._credit - size, -self.burst))
        self._note(size)

    def _note(self, size: int) -> None:
        self._recent.append((self._forget(), size))

    def _forget(self) -> float:
        """Drop what was sent before the span; return the time."""
        now = self._clock()
        while self._recent and now - self._recent[0][0] > _SPAN:
            self._recent.popleft()
        return now
