"""The API server's clock, which may differ from this machine's by minutes or hours.

Times in objects and in logs are the cluster's. Each answer's ``Date`` header (RFC 9110, section
6.6.1) tells how far its clock is ahead; a difference of a few seconds counts as none.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ciao_kernel.retry_after import http_date

SKEW = 24 * 3600.0
"""Seconds by which this machine's clock may be wrong, as of a virtual machine that slept. What has
ended by less, the server judges."""
_NORMAL = 5.0
"""Seconds by which clocks may differ without any effect on a user."""


class ServerClock:
    """Estimates the difference of two clocks; each client has one.

    Args:
        time: This machine's clock, in seconds since the epoch; tests pass their own.

    Attributes:
        ahead: Seconds by which the server's clock is ahead. It is a whole number and changes only
            if an answer contradicts it, so that a converted time can be converted back.
    """

    def __init__(self, time: Callable[[], float] = time.time) -> None:
        self._time = time
        self.ahead = 0

    def note(self, date: str, sent: float) -> None:
        """Take the ``Date`` header of an answer into account; a missing or invalid one is ignored.

        Args:
            date: The header's value; "" if there is none.
            sent: Time by this machine's clock at which the request was sent. The header was
                written after it, and before now: a slow answer is no difference of the clocks.
        """
        if (server_time := http_date(date)) is None:
            return
        least, most = server_time - self._time(), server_time + 1 - sent
        if not least - _NORMAL <= self.ahead <= most + _NORMAL:
            near_zero = least - _NORMAL <= 0 <= most + _NORMAL
            self.ahead = 0 if near_zero else round((least + most) / 2)

    def now(self) -> float:
        """Return the time of the server."""
        return self._time() + self.ahead

    def to_local(self, seconds: float) -> float:
        """Return a time of the server by this machine's clock; 0, which is no time, stays 0."""
        return seconds - self.ahead if seconds else seconds

    def to_server(self, seconds: float) -> float:
        """Return a time of this machine by the server's clock; 0 stays 0."""
        return seconds + self.ahead if seconds else seconds
