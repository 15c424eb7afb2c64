"""Time limits for retries while a log is unavailable."""

from __future__ import annotations

import time

from ciao_kernel.kube.log_request import End

# Seconds; nodes restart. If a node is off, the API server itself waits half a minute for it, so the
# limit allows a few requests.
_PATIENCE = {
    End.NOTHING: 10.0,
    End.WORDS: 10.0,
    End.DENIED: 10.0,
    End.UNWELL: 60.0,
    End.CUT: 120.0,
    End.QUIET: 120.0,
}


class RetryLimits:
    """Timers, one for each kind of unsuccessful answer.

    One kind does not reset the timer of another: if a node is off, errors of the API server and
    missing answers alternate.
    """

    def __init__(self) -> None:
        self._since: dict[End, float] = {}

    def reset(self) -> None:
        """Reset all timers."""
        self._since.clear()

    def over(self, end: End) -> bool:
        """Note an answer, and return whether its kind has lasted for too long."""
        now = time.monotonic()
        return now - self._since.setdefault(end, now) >= _PATIENCE.get(end, float("inf"))
