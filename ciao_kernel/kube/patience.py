"""For how long a log is asked for that is not handed out."""

from __future__ import annotations

import time

from ciao_kernel.kube.log_request import End

# Seconds; nodes restart. One that is off answers nothing: then the API server, whose own patience
# with it is half a minute, is asked a few times.
_PATIENCE = {
    End.NOTHING: 10.0,
    End.WORDS: 10.0,
    End.DENIED: 10.0,
    End.UNWELL: 60.0,
    End.CUT: 120.0,
    End.QUIET: 120.0,
}


class Patience:
    """Counts for each kind of answer since when nothing else came.

    One kind does not begin anew because of another: a node that is off is now an error of the API
    server, now no answer at all.
    """

    def __init__(self) -> None:
        self._since: dict[End, float] = {}

    def anew(self) -> None:
        """Forget what was counted."""
        self._since.clear()

    def over(self, end: End) -> bool:
        """Count an answer, and tell whether its kind has lasted for too long."""
        now = time.monotonic()
        return now - self._since.setdefault(end, now) >= _PATIENCE.get(end, float("inf"))
