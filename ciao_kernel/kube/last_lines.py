"""The last lines of a container's log: they tell whether all of it was delivered.

A reader asks once more after the end of a log. Without this it would get all lines of the last
second again, and a program that only prints writes a hundred thousand lines in a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing

from ciao_kernel.kube.client import Client
from ciao_kernel.kube.log_request import End, LogRequest
from ciao_kernel.kube.replay import Replay
from ciao_kernel.kube.resume_position import Lines, ResumePosition

_MOST = 100
"""Equal last lines up to which it is worth asking."""


class LastLines:
    """Asks for last lines; for :class:`~ciao_kernel.kube.logs.ContainerLog`.

    Args:
        client: The API server.
        path: Path of the pod's log.
        query: Query parameters of a request for the newest log.
        read_timeout: Seconds without a byte after which a connection counts as dead.
    """

    def __init__(
        self, client: Client, path: str, query: Mapping[str, str], read_timeout: float
    ) -> None:
        self._client, self._path, self._query = client, path, query
        self._read_timeout = read_timeout

    async def are_delivered(self, position: ResumePosition, *, previous: bool) -> bool:
        """Return whether the log ends with the last delivered lines.

        False if that is not certain: a request for the lines since then tells.

        Args:
            position: The resume position. The last line has its end.
            previous: Whether it is the log of the instance before the newest one.
        """
        if not position.last or position.run > _MOST:
            return False
        # With the line before them: one more line that is equal to them, stamp included, is new.
        query = {**self._query, "tailLines": str(position.run + 1)}
        if previous:
            query["previous"] = "true"
        found = ResumePosition()
        replay = Replay(found)
        request = LogRequest(self._client, self._path, query, replay, self._read_timeout, 0)
        count = 0
        async with aclosing(request.read()) as pieces:
            async for piece in pieces:
                count += piece.count if isinstance(piece, Lines) else 0
        same = (found.last, found.run) == (position.last, position.run)
        # An answer that was cut off may lack lines, and end in order.
        whole = count > position.run or position.first == position.last
        return request.end is End.CLEAN and same and whole and not replay.unfinished
