"""Reports to the user that the API server of a followed job or pod is away, and that it is back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ciao_kernel.errors import BackendError
from ciao_kernel.kube.watch import WatchedList
from ciao_kernel.model import Notice

_AWAY = 2.0
"""Seconds without an answer after which the user is told."""
_ANSWERS = "the API server answers again."
_ACCEPTS = "the API server accepts the credentials again."


class Outages:
    """The outages of the API server while one job or pod is followed.

    Args:
        patience: Seconds without an answer after which following ends.
        lost: Returns the error for that case, from the seconds and the list that is away.
    """

    def __init__(self, patience: float, lost: Callable[[float, WatchedList], BackendError]) -> None:
        self._patience, self._lost = patience, lost
        self._reported = ""

    def report(self, watched: Sequence[WatchedList]) -> Notice | None:
        """Return a notice that the server is away or back, once each.

        Args:
            watched: The lists that the server sends.

        Raises:
            ClusterFault: It is away for too long.
            Refused: It has refused the credentials for too long.
        """
        since = [(one.away_since, one) for one in watched if one.away_since is not None]
        if not since:
            told, self._reported = self._reported, ""
            return Notice(told) if told else None
        began, first = min(since, key=lambda pair: pair[0])
        away = time.monotonic() - began
        if away > self._patience:
            raise self._lost(away, first)
        refusal = first.refusal
        told = _ACCEPTS if refusal else _ANSWERS
        if away <= _AWAY or self._reported in (told, _ACCEPTS):
            return None
        self._reported = told
        if refusal:  # also after an outage: only the user can help
            return Notice(
                f"{refusal.message.rstrip('.')}. If you have to sign in, do it now: it goes on "
                "from here once they are accepted …"
            )
        return Notice(f"the API server does not answer ({first.fault}); waiting for it …")
