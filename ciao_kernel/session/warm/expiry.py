"""When idle replicas end by themselves, and why they have ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ciao_kernel.model.times import span

_IDLE, _GONE, _DEAF = "idle", "the kernel is gone", "its input was closed"
"""Reasons, in the words of the agents (:mod:`ciao_kernel.delivery.warm.agent.need`)."""


class Expiry:
    """The end of the replicas of one job.

    Args:
        lease: Seconds without a word of the kernel after which idle replicas end.
        clock: Tells the time, also that of a sleep of this machine.
    """

    def __init__(self, lease: float, clock: Callable[[], float] = time.time) -> None:
        self._lease, self._clock = lease, clock
        self._idle_since, self._seconds = clock(), 0
        self._silent_at = clock() + lease
        self._said = ""

    @property
    def at(self) -> float:
        """Time at which they end if no run begins, and they hear nothing more of this kernel.

        It is 0 if they have said that they end.
        """
        return min(self.idle_end, self._silent_at)

    @property
    def idle_end(self) -> float:
        """Time at which they end if no run begins, and this kernel goes on; 0 as for :attr:`at`."""
        return 0.0 if self._said else self._idle_since + self._seconds

    @property
    def said(self) -> str:
        """Why they end, as one of them has said; "" if none has."""
        return self._said

    def begin(self, seconds: int) -> None:
        """Note a run, which brings the time that they wait after it."""
        self._seconds = seconds

    def rest(self) -> None:
        """Note the end of a run."""
        self._idle_since = self._clock()

    def reach(self, sent: float, *, running: bool) -> None:
        """Note that all of them were sent a word.

        Args:
            sent: When.
            running: Whether a run is active: then they do not end.
        """
        if running or sent < self._silent_at:  # else this process has slept, and they have ended
            self._silent_at = sent + self._lease

    def hear(self, marker: dict[str, Any]) -> None:
        """Note what one of them has said, if it says that it ends."""
        if marker.get("ev") == "bye" or marker.get("last"):
            self._said = str(marker.get("last") or marker.get("why"))

    def why(self, *, over: bool) -> str:
        """Return the end of a sentence that says that they have ended: the reason, if it is known.

        Args:
            over: Whether their job has ended: then only they themselves know why.
        """
        first = _IDLE if self._idle_since + self._seconds < self._silent_at else _GONE
        return {
            _IDLE: f", because no run began in them for {span(self._seconds)}",
            _GONE: ", because they heard nothing of this kernel for too long",
            _DEAF: ", because the connection to their input was lost",
        }.get(self._said or ("" if over else first), "")
