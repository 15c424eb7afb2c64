"""Rate of a replica's lines: their number per second, over the last few seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_SPAN = 3.0
_SHORTEST = 0.5
"""Seconds over which the first lines count, at least."""
_TOGETHER = 0.1
"""Seconds in which new lines are counted as one mark."""


class LineRate:
    """Lines per second of one replica.

    Args:
        clock: Seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._marks: deque[tuple[float, int]] = deque()

    def add(self, lines: int) -> None:
        """Count new lines."""
        now = self._forget()
        if lines:
            if self._marks and now - self._marks[-1][0] < _TOGETHER:
                self._marks[-1] = (self._marks[-1][0], self._marks[-1][1] + lines)
            else:
                self._marks.append((now, lines))

    def value(self) -> float:
        """Return the rate now."""
        now = self._forget()
        if not self._marks:
            return 0.0
        span = max(_SHORTEST, min(_SPAN, now - self._marks[0][0]))
        return sum(lines for _, lines in self._marks) / span

    @property
    def is_changing(self) -> bool:
        """Return whether some counted lines will soon be too old."""
        return bool(self._marks)

    def _forget(self) -> float:
        """Drop lines that are too old, even if nobody asks for the rate; return the time."""
        now = self._clock()
        while self._marks and now - self._marks[0][0] > _SPAN:
            self._marks.popleft()
        return now
