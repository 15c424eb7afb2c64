"""The first lines of a container's newest log and of the one before it: they tell whose log came.

An answer of the log endpoint does not name the container's instance. But the first line of a log,
with its stamp in nanoseconds, is unique to an instance.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import aclosing

from ciao_kernel.kube import timestamps
from ciao_kernel.kube.client import Client
from ciao_kernel.kube.log_request import End, LogRequest
from ciao_kernel.kube.replay import Replay
from ciao_kernel.kube.resume_position import ResumePosition
from ciao_kernel.kube.retry_limits import RetryLimits

_FIRST_WAIT, _LONGEST_WAIT = 0.05, 5.0
_MAY_PASS = (End.CUT, End.QUIET, End.UNWELL)


class FirstLines:
    """Asks for first lines; for :class:`~ciao_kernel.kube.logs.ContainerLog`.

    Args:
        client: The API server.
        path: Path of the pod's log.
        query: Query parameters of a request for the newest log.
        read_timeout: Seconds without a byte after which a connection counts as dead.
        alive: Returns whether the pod exists.
        away: Returns whether the API server is known to be away; then it is waited for.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        query: Mapping[str, str],
        read_timeout: float,
        alive: Callable[[], bool],
        away: Callable[[], bool],
    ) -> None:
        self._client, self._path, self._read_timeout = client, path, read_timeout
        self._query = {**query, "limitBytes": str(timestamps.HEAD)}
        self._alive, self._away = alive, away

    async def read(self, previous: bool) -> bytes:
        """Return the head of the first line of the newest log, or of the one before it.

        It is b"" if it is not available.
        """
        query = {**self._query, "previous": "true"} if previous else self._query
        patience, wait = RetryLimits(), _FIRST_WAIT
        while self._alive():
            progress = ResumePosition()
            replay = Replay(progress)
            request = LogRequest(self._client, self._path, query, replay, self._read_timeout, 0)
            async with aclosing(request.read()) as pieces:
                async for _ in pieces:
                    pass
            if request.end is End.CLEAN:
                replay.finish()
                return progress.first
            if request.end is End.AWAY or self._away():
                patience.reset()
            elif request.end not in _MAY_PASS or patience.over(request.end):
                break
            await asyncio.sleep(wait * (0.5 + random.random()))
            wait = min(_LONGEST_WAIT, wait * 2)
        return b""
