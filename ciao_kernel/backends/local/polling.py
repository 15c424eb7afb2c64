"""Pauses of a follower between two looks at the logs of a local job."""

from __future__ import annotations

import time
from collections.abc import Callable

_FIRST, _FIRST_SHARE = 0.001, 1 / 20
"""Shortest pause until the first output, and the share of the time so far from which it grows."""
_QUIET, _SHARE = 0.01, 1 / 100
"""The same for later output: the share is that of the time since the last output."""
_BUSY = 0.05
"""Longest pause, and the pause of a job that writes all the time."""
_BURST = 4
"""Number of looks in a row that find output after which a job counts as busy."""
_FEW = 16
"""Number of replicas from which the pauses grow: each look reads all logs."""


class PollPauses:
    """Chooses the pause after each look.

    A line is read after a hundredth of the silence before it, which nobody notices. Lines that come
    all the time are read together: a look that finds some costs much more than one that finds none.

    Args:
        replicas: Number of replicas.
        clock: Seconds, monotonic.
    """

    def __init__(self, replicas: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet = min(_BUSY, _QUIET * max(1.0, replicas / _FEW))
        self._clock = clock
        self._heard = clock()
        self._begun = False
        self._row = 0

    def after(self, *, found: bool) -> float:
        """Return the seconds to wait after a look that did, or did not, find output."""
        now = self._clock()
        if found:
            self._heard, self._begun = now, True
        self._row = self._row + 1 if found else 0
        if self._row >= _BURST:
            return _BUSY
        silence = now - self._heard
        least = self._quiet
        if not self._begun:
            least = min(self._quiet, max(_FIRST, silence * _FIRST_SHARE))
        return min(_BUSY, max(least, silence * _SHARE))
