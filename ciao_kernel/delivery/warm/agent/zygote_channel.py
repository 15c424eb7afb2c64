"""The agent's end of the channel to a zygote."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any


class ZygoteChannel:
    """A zygote, as the agent sees it.

    Args:
        pid: Its process.
        channel: The socket to it.
        environment: The variables that its imports have seen.
    """

    def __init__(self, pid: int, channel: socket.socket, environment: dict[str, str]) -> None:
        self.pid, self.channel, self.environment = pid, channel, environment
        self.ready = False
        """Whether its imports are done."""
        self._text = b""

    def send(self, **what: Any) -> None:
        """Send a request; one that cannot be sent is answered by the end of the channel."""
        with contextlib.suppress(OSError):
            self.channel.sendall(json.dumps(what).encode() + b"\n")

    def receive(self) -> tuple[list[dict[str, Any]], int | None]:
        """Return the messages that have arrived, and a descriptor that came with them."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.channel, 1 << 16, 1)
        except OSError:
            data, descriptors = b"", []
        if not data:
            return [{"gone": True}], None
        *lines, self._text = (self._text + data).split(b"\n")
        found = descriptors[0] if descriptors else None
        return [json.loads(line) for line in lines], found
