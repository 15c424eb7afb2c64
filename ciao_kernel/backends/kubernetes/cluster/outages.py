"""Reports to the user that the API server of a followed job or pod is away, and that it is back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube.watch import WatchedList
from ciao_kernel.model import Notice

_AWAY = 2.0
"""Seconds without an answer after which the user is told."""


class Outages:
    """The outages of the API server while one job or pod is followed.

    Args:
        patience: Seconds without an answer after which following ends.
        lost: Returns the error for that case, from the seconds and the last fault.
    """

    def __init__(self, patience: float, lost: Callable[[float, object], ClusterFault]) -> None:
        self._patience, self._lost = patience, lost
        self._reported = False

    def report(self, watched: Sequence[WatchedList]) -> Notice | None:
        """Return a notice that the server is away or back, once each.

        Args:
            watched: The lists that the server sends.

        Raises:
            ClusterFault: It is away for too long.
        """
        since = [one.away_since for one in watched if one.away_since is not None]
        if not since:
            told, self._reported = self._reported, False
            return Notice("the API server answers again.") if told else None
        away = time.monotonic() - min(since)
        fault = next((one.fault for one in watched if one.fault), None)
        if away > self._patience:
            raise self._lost(away, fault)
        if away > _AWAY and not self._reported:
            self._reported = True
            return Notice(f"the API server does not answer ({fault}); waiting for it …")
        return None
