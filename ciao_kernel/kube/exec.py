"""Run a command in a container, with its input and output over one WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ciao_kernel.background import cancel_all
from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube.channel import (
    CLOSE,
    ERRORS,
    INPUT,
    OUTPUT,
    PIECE,
    SIZE,
    STATUS,
    V5,
    open_channel,
)
from ciao_kernel.kube.client import Client
from ciao_kernel.model.queries import Streams

if TYPE_CHECKING:
    import aiohttp

_log = logging.getLogger(__name__)
_PING, _UNANSWERED = 10.0, 6
"""Seconds between two pings, and the number of them without an answer after which the connection
counts as dead. Load balancers end connections without data, usually after a minute; kubectl also
waits a minute for an answer."""
_LAST_WORDS = 5.0
"""Seconds for the server to close the connection after it has sent the command's status."""
_PAUSES = (0.2, 1.0)
"""Seconds before a command is tried again that the container's runtime could not start."""
_NEVER_BEGAN = ("waiting for init preliminary setup", "executing setns process")
"""What runc says when its own process died before it reached the command, which happens on a node
under load (``libcontainer/process_linux.go``): the command did nothing, and can be tried again."""


async def execute(
    client: Client, path: str, container: str, command: Sequence[str], streams: Streams
) -> int:
    """Run a command and return its exit code.

    Args:
        client: The API server.
        path: Path of the pod.
        container: Name of the container.
        command: Argument vector.
        streams: Input and output of the command.

    Raises:
        Refused: The server refused, or the command cannot be started.
        ClusterFault: The connection ended before the command did.
    """
    tty = streams.sizes is not None
    query = [("container", container), ("stdout", "true"), ("stderr", str(not tty).lower())]
    query += [("stdin", str(streams.input is not None).lower()), ("tty", str(tty).lower())]
    query += [("command", word) for word in command]
    for pause in (*_PAUSES, None):
        async with contextlib.AsyncExitStack() as closing:
            channel = await open_channel(
                client, closing, f"{path}/exec", query, functools.partial(_refusal, path), _cut
            )
            run = _Run(channel, streams)
            status = await run.status()
        if pause is None or run.used or not _never_began(status):
            return _code(status)
        _log.debug("%s: the runtime could not start a command; again in %s s", path, pause)
        await asyncio.sleep(pause)
    raise AssertionError("the last round returns or raises")


def _failed(task: asyncio.Task[None]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None


class _Run:
    """One running command."""

    def __init__(self, channel: aiohttp.ClientWebSocketResponse, streams: Streams) -> None:
        self._channel, self._streams = channel, streams
        self._status: dict[str, Any] | None = None
        self._sent = self._taken = 0
        """Messages that were sent, and those that the server has passed on to the command."""
        self._unanswered = 0
        """Pings since the last message from the server."""
        self._heard = False

    @property
    def used(self) -> bool:
        """Whether output came, or input was taken from its source: it cannot be tried again."""
        return self._heard or self._streams.input is not None or bool(self._sent)

    async def status(self) -> dict[str, Any]:
        """Run the command until its end, and return the server's Status object.

        Raises:
            ClusterFault: The connection ended before the command did.
        """
        works = (self._input(), self._sizes(), self._pings())
        senders = [asyncio.ensure_future(work) for work in works]
        receiving = asyncio.ensure_future(self._receive())
        try:
            # If a sender fails, the command ends: it would wait for its input forever.
            waiting = {receiving, *senders}
            while not receiving.done() and not any(_failed(task) for task in senders):
                waiting -= (await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED))[0]
            if receiving.done():
                await receiving
        finally:
            senders.append(receiving)
            await cancel_all(senders)
        for task in senders:
            if not task.cancelled() and (error := task.exception()):
                raise error
        if self._status is None:
            raise _cut("the connection ended before the command did")
        return self._status

    async def _receive(self) -> None:
        import aiohttp

        while True:
            # After the status, wait only for messages that are still on their way.
            async with asyncio.timeout(None if self._status is None else _LAST_WORDS) as limit:
                try:
                    message = await self._channel.receive()
                except TimeoutError:
                    if not limit.expired():
                        raise
                    return
            self._unanswered = 0
            if message.type is aiohttp.WSMsgType.BINARY:
                self._take(message.data)
            elif message.type is aiohttp.WSMsgType.PING:
                with contextlib.suppress(ConnectionError):  # the next message is its end
                    await self._channel.pong(message.data)
            elif message.type is aiohttp.WSMsgType.PONG:
                if message.data.isdigit():
                    self._taken = int(message.data)
            elif message.type is not aiohttp.WSMsgType.TEXT:
                return  # closed, in order or not: the status shows which

    def _take(self, data: bytes) -> None:
        kind, text = (data[0], data[1:]) if data else (CLOSE, b"")
        self._heard |= kind in (OUTPUT, ERRORS) and bool(text)
        if kind == OUTPUT and text:
            self._streams.out(text)
        elif kind == ERRORS and text:
            self._streams.err(text)
        elif kind == STATUS and text:
            with contextlib.suppress(ValueError):
                found = json.loads(text)
                self._status = found if isinstance(found, dict) else {}

    async def _input(self) -> None:
        if self._streams.input is None:
            return
        async for data in self._streams.input:
            for start in range(0, len(data), PIECE):
                await self._send(INPUT, data[start : start + PIECE])
        if self._channel.protocol == V5:
            await self._send(CLOSE, bytes([INPUT]))
        elif self._streams.sizes is None:
            # Otherwise a command that reads until the end of its input would wait forever.
            await self._channel.close()
            raise ClusterFault(
                "this cluster is older than Kubernetes 1.30 and cannot signal the end of input.",
                "Put the input into the command, or type it in a terminal: -i -t.",
            )

    async def _pings(self) -> None:
        """Keep the connection in use, and end when it is dead.

        The server reads messages in order, and may have to wait until the command reads its input:
        it then answers no pings. The number in each ping, which its answer repeats, shows whether
        the server could be waiting in this way.

        Raises:
            ClusterFault: The connection is dead.
        """
        while True:
            await asyncio.sleep(_PING)
            if self._unanswered >= _UNANSWERED and self._taken == self._sent:
                seconds = _PING * _UNANSWERED
                raise _cut(f"the server has not answered for {seconds:.0f} s")
            self._unanswered += 1
            with contextlib.suppress(ConnectionError):  # the receiver reports it
                await self._channel.ping(str(self._sent).encode())

    async def _sizes(self) -> None:
        if self._streams.sizes is None:
            return
        async for columns, rows in self._streams.sizes:
            await self._send(SIZE, json.dumps({"Width": columns, "Height": rows}).encode())

    async def _send(self, kind: int, data: bytes) -> None:
        self._sent += 1
        with contextlib.suppress(ConnectionError):  # the command ended, or the receiver reports it
            await self._channel.send_bytes(bytes([kind]) + data)


def _never_began(status: dict[str, Any]) -> bool:
    return any(words in str(status.get("message")) for words in _NEVER_BEGAN)


def _code(status: dict[str, Any]) -> int:
    """Return the exit code in a Status object.

    Raises:
        Refused: The command was not started.
    """
    if status.get("status") == "Success":
        return 0
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, dict) and cause.get("reason") == "ExitCode":
            text = str(cause.get("message"))
            if text.isdigit():
                return int(text)
    words = " ".join(str(status.get("message") or "no reason given").split())
    # The runtime's own message comes after the prefixes of all layers above it.
    words = words.rpartition("unable to start container process: ")[2].removesuffix(": unknown")
    raise Refused(
        f"the command could not be run: {words}",
        "The container must contain the program; no shell is used to start it.",
        code=int(status["code"]) if isinstance(status.get("code"), int) else 500,
        reason=str(status.get("reason") or ""),
    )


def _refusal(path: str, code: int) -> Refused:
    """Return the error for a refused WebSocket."""
    pod = path.rpartition("/")[2]
    if code == 403:
        namespace = path.split("/namespaces/")[1].split("/")[0]
        return Refused(
            f"you may not run commands in the pods of the namespace {namespace}: "
            "create pods/exec or get pods/exec is not allowed.",
            "Ask an administrator for the Role of deploy/rbac/exec-role.yaml.",
            code=code,
            reason="Forbidden",
        )
    if code == 404:
        return Refused(f"the pod {pod} is gone.", code=code, reason="NotFound")
    return Refused(
        f"no command can be run in {pod} now: the server answered {code}.",
        "Is its container running? If there is a proxy, does it allow WebSockets?",
        code=code,
    )


def _cut(words: str) -> ClusterFault:
    return ClusterFault(
        f"{words}; the result of the command is unknown.",
        "It may still be running in its container.",
    )
