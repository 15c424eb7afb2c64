"""The ends of the logs that went by while a job was followed: why it failed stands there."""

from __future__ import annotations

from ciao_kernel.model import Output, Replica

_MOST = 256 * 1024
"""Bytes of one replica: a traceback, and what was said before it."""
_ALL = 32 * 1024 * 1024
"""Bytes of all replicas together; a thousand of them get less each."""


class Tails:
    """Keeps the end of each replica's log.

    Args:
        replicas: How many there are.
    """

    def __init__(self, replicas: int) -> None:
        self._size = min(_MOST, _ALL // max(1, replicas))
        self.data: dict[Replica, bytes] = {}

    def add(self, event: Output) -> None:
        """Note what a replica wrote."""
        if event.data:
            old = self.data.get(event.replica, b"")
            new = event.data[-self._size :]
            self.data[event.replica] = (old + new)[-self._size :]
