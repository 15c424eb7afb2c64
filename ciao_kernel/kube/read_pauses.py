"""When the reader of a log pauses, so that it reads several lines at once.

The API server sends each line separately. A wake-up for each line costs eight times the processor
time of reading several lines together. A line after a quiet moment does not wait, though.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_BURST = 4
"""Number of reads without a pause after a quiet moment."""
_BACKLOG = 1 << 16
"""A read of this many bytes means that more data is waiting."""


class ReadPauses:
    """Chooses the pause after each read of one log.

    A read uses up one of a few free ones, and each ``pause`` of time returns one. So a log with
    fewer reads than one in each ``pause`` is read at once, and a busy one once in each ``pause``.

    Args:
        pause: Seconds of a pause; 0 for none at all.
        clock: Seconds, monotonic.
    """

    def __init__(self, pause: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._pause = pause
        self._clock = clock
        self._free = float(_BURST)
        self._counted = clock()

    def after(self, size: int) -> float:
        """Return the seconds to pause after a read of so many bytes."""
        if not self._pause or size >= _BACKLOG:
            return 0.0
        now = self._clock()
        self._free = min(_BURST, self._free + (now - self._counted) / self._pause) - 1
        self._counted = now
        return self._pause if self._free < 0 else 0.0
