"""A WebSocket to a container, for a command in it or for its standard input.

The API server's subprotocol is ``v5.channel.k8s.io`` (``v4`` before Kubernetes 1.30): each message
is binary, and its first byte is the number of its stream.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from ciao_kernel.kube.client import Client

if TYPE_CHECKING:
    import aiohttp

_log = logging.getLogger(__name__)

INPUT, OUTPUT, ERRORS, STATUS, SIZE, CLOSE = 0, 1, 2, 3, 4, 255
V5, _V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
PIECE = 1 << 15
"""Largest message in bytes: the server does not accept long messages."""
_CONNECT = 10.0


async def open_channel(
    client: Client, session: aiohttp.ClientSession, path: str, query: list[tuple[str, str]]
) -> aiohttp.ClientWebSocketResponse:
    """Open a WebSocket to a container; its owner answers pings, and closes it."""
    async with asyncio.timeout(_CONNECT):
        channel: aiohttp.ClientWebSocketResponse = await session.ws_connect(
            client.access.server.address + path,
            params=query,
            headers=client.access.headers(),
            protocols=(V5, _V4),
            max_msg_size=0,
            autoping=False,  # the owner answers pings, and may send its own
            **client.access.options(),
        )
    _log.debug("websocket %s is open", path)
    # For the time in which pings cannot tell: while the command does not read its input.
    connection = channel.get_extra_info("socket")
    if connection is not None:
        for level, name, value in (
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", None), 15),
            (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPINTVL", None), 5),
            (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPCNT", None), 4),
        ):
            if name is not None:
                connection.setsockopt(level, name, value)
    return channel
