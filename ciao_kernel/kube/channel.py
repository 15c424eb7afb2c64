"""A WebSocket to a container, for a command in it or for its standard input.

The API server's subprotocol is ``v5.channel.k8s.io`` (``v4`` before Kubernetes 1.30): each message
is binary, and its first byte is the number of its stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube import connection_faults, responses
from ciao_kernel.kube.access import Access
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
    client: Client,
    closing: contextlib.AsyncExitStack,
    path: str,
    query: list[tuple[str, str]],
    refusal: Callable[[int], Refused],
    cut: Callable[[str], ClusterFault],
) -> aiohttp.ClientWebSocketResponse:
    """Open a WebSocket, with renewed credentials if the server wants them; the owner answers pings.

    Args:
        client: The API server.
        closing: Closes it. It has a pool for itself alone, with the credentials of this moment, so
            closing that ends everything that belongs to it.
        path: Path of the request.
        query: Its query.
        refusal: Returns the error for a status: the client library does not provide the text.
        cut: Returns the error for words about the connection.

    Raises:
        Refused: The server refused.
        ClusterFault: The server does not answer.
    """
    import aiohttp

    for renewed in (False, True):
        connections = await closing.enter_async_context(await client.connections.open())
        shown = client.access
        try:
            channel = await _connect(client, connections, path, query)
        except aiohttp.WSServerHandshakeError as error:
            if error.status == 401 and not renewed:
                await _renew(client, shown, refusal(error.status))
                continue
            raise await _rejected(client, path, error.status) or refusal(error.status) from None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if connection_faults.is_certificate_rejected(error, shown) and not renewed:
                await _renew(client, shown, refusal(401))
                continue
            if not renewed and await client.connections.follow_server(shown):
                continue
            # The error itself may quote a password.
            why = connection_faults.why(error)
            raise cut(f"{client.access.source} does not answer: {why}") from None
        closing.push_async_callback(channel.close)
        return channel
    raise AssertionError("the last round returns or raises")


async def _renew(client: Client, shown: Access, refused: Refused) -> None:
    """Load the credentials again.

    Raises:
        Refused: That failed. The user may still sign in.
    """
    try:
        await client.renew(shown)
    except ClusterFault as fault:
        raise responses.credentials_rejected(refused, shown, fault) from None


async def _rejected(client: Client, path: str, code: int) -> Refused | None:
    """Return the error of rejected credentials; None if the server accepts them elsewhere.

    The server also passes a node's own 401 on (its expired certificate,
    github.com/kubernetes/kubernetes/issues/63128).
    """
    if code == 401:
        try:
            await client.get(path.rpartition("/")[0])  # the pod
        except Refused as error:
            return error if error.code == 401 else None
    return None


async def _connect(
    client: Client, session: aiohttp.ClientSession, path: str, query: list[tuple[str, str]]
) -> aiohttp.ClientWebSocketResponse:
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
