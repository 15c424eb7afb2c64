"""The standard input of a running container, over one WebSocket that stays open.

``pods/attach`` starts no process and opens no port. A container takes input only if its pod has
``stdin: true``; without it the server closes the channel at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from typing import TYPE_CHECKING, Any

from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube import connection_faults
from ciao_kernel.kube.channel import INPUT, PIECE, STATUS, open_channel
from ciao_kernel.kube.client import Client

if TYPE_CHECKING:
    import aiohttp


class ContainerInput:
    """Writes to the standard input of one container.

    Args:
        client: The API server.
        path: Path of the pod.
        container: Name of the container.
    """

    def __init__(self, client: Client, path: str, container: str) -> None:
        self._client, self._path, self._container = client, path, container
        self._closing = contextlib.AsyncExitStack()
        self._channel: aiohttp.ClientWebSocketResponse | None = None
        self._ended = ""
        self._turn = asyncio.Lock()

    async def send(self, data: bytes) -> None:
        """Write data; a connection that has ended is opened again once.

        Raises:
            Refused: The server refused the connection.
            ClusterFault: The container takes no input, or the server does not answer.
        """
        async with self._turn:  # the data of two senders is not mixed
            for again in (False, True):
                try:
                    if self._channel is None or self._ended:
                        await self._open()
                    await self._write(data)
                except ClusterFault:
                    await self.close()
                    if again:
                        raise
                else:
                    return

    async def close(self) -> None:
        """Close the connection; the next :meth:`send` opens another one."""
        self._channel = None
        await self._closing.aclose()

    async def _write(self, data: bytes) -> None:
        assert self._channel is not None
        for start in range(0, len(data), PIECE):
            try:
                await self._channel.send_bytes(bytes([INPUT]) + data[start : start + PIECE])
            except (ConnectionError, OSError) as error:
                raise _cut(self._ended or connection_faults.why(error)) from None
            if self._ended:  # the server says on another stream why it takes nothing
                raise _cut(self._ended)

    async def _open(self) -> None:
        await self.close()
        query = [("container", self._container), ("stdin", "true"), ("stdout", "false")]
        query += [("stderr", "false"), ("tty", "false")]
        channel = await open_channel(
            self._client,
            self._closing,
            f"{self._path}/attach",
            query,
            functools.partial(_refusal, self._path),
            _cut,
        )
        self._channel, self._ended = channel, ""
        reader = asyncio.ensure_future(self._read(channel))
        self._closing.callback(reader.cancel)

    async def _read(self, channel: aiohttp.ClientWebSocketResponse) -> None:
        """Answer pings, and note the end of the connection with its reason."""
        import aiohttp

        why = ""
        while True:
            message = await channel.receive()
            if message.type is aiohttp.WSMsgType.PING:
                with contextlib.suppress(ConnectionError):
                    await channel.pong(message.data)
            elif message.type is aiohttp.WSMsgType.BINARY:
                why = _reason(message.data) or why
                if why and self._channel is channel:
                    self._ended = why
            elif message.type not in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.PONG):
                if self._channel is channel:
                    self._ended = why or "the connection ended"
                return


def _reason(data: bytes) -> str:
    """Return the message of a Status on its stream; "" for anything else."""
    if len(data) < 2 or data[0] != STATUS:
        return ""
    try:
        status: Any = json.loads(data[1:])
    except ValueError:
        return ""
    if not isinstance(status, dict):
        return ""
    return " ".join(str(status.get("message") or "the container has ended").split())


def _refusal(path: str, code: int) -> Refused:
    pod = path.rpartition("/")[2]
    if code == 403:
        namespace = path.split("/namespaces/")[1].split("/")[0]
        return Refused(
            f"you may not write to replicas in the namespace {namespace}: "
            "create pods/attach or get pods/attach is not allowed.",
            "Ask an administrator for the Role of deploy/rbac/warm-role.yaml.",
            code=code,
            reason="Forbidden",
        )
    if code == 404:
        return Refused(f"the pod {pod} is gone.", code=code, reason="NotFound")
    return Refused(
        f"nothing can be sent to {pod} now: the server answered {code}.",
        "If there is a proxy, does it allow WebSockets?",
        code=code,
    )


def _cut(words: str) -> ClusterFault:
    return ClusterFault(f"a command could not be sent: {words.rstrip('.')}.")
