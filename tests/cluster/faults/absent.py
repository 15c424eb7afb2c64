"""A server before the API server that lacks groups of its API, as one without their CRDs does.

The groups stay in the cluster, for everybody else. What is asked of them through this server gets
the answer that Kubernetes gives for a path that it does not have; all else is passed on.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import threading
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.cluster.layout import Layout

_WAIT = 10  # seconds for the loop's thread to do a thing that takes milliseconds
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.I)
_UPGRADES = re.compile(rb"\r\nupgrade:", re.I)
_PIECE = 1 << 16
_ABSENT = (
    b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"X-Content-Type-Options: nosniff\r\nContent-Length: 19\r\n\r\n404 page not found\n"
)


class Absent:
    """Such a server on a free port of this machine, as a context manager.

    Args:
        at: the cluster. Its API server's certificate names 127.0.0.1, and is used here too.
        groups: of the API that it lacks, such as `kubeflow.org`.
    """

    def __init__(self, at: Layout, *groups: str) -> None:
        self._at, self._groups = at, groups
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="absent", daemon=True)
        self._connections: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None

    def kubeconfig(self, file: Path, like: Path) -> Path:
        """Write a kubeconfig that goes through this server, and return its path.

        Args:
            file: where.
            like: the kubeconfig to take all the rest from. It signs in by a token: a certificate
                would not get through.
        """
        content = json.loads(like.read_text())
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        for entry in content["clusters"]:
            entry["cluster"]["server"] = f"https://127.0.0.1:{port}"
        file.touch(mode=0o600)
        file.write_text(json.dumps(content, indent=2))
        return file

    def __enter__(self) -> Absent:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._call(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WAIT)
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT)

    async def _listen(self) -> None:
        own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        own.load_cert_chain(self._at.pki / "apiserver.crt", self._at.pki / "apiserver.key")
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=own)

    async def _shut(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        trust = ssl.create_default_context(cafile=str(self._at.pki / "ca.crt"))
        try:
            server = await asyncio.open_connection(self._at.address, 6443, ssl=trust)
            answers = asyncio.create_task(_copy(server[0], writer))
            try:
                await self._requests(reader, server[1], writer)
            except (OSError, asyncio.IncompleteReadError):
                pass  # the client has gone
            finally:
                answers.cancel()
                server[1].close()
        finally:
            self._connections.discard(task)
            writer.close()

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        server: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
    ) -> None:
        """Pass requests on; a client sends the next one when it has the whole answer."""
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            if self._lacks(head):
                client.write(_ABSENT)
                await client.drain()
                continue
            server.write(head + body)
            await server.drain()
            if _UPGRADES.search(head):
                await _copy(reader, server)
                return

    def _lacks(self, head: bytes) -> bool:
        path = head.split(b" ", 2)[1].decode().partition("?")[0]
        return any(f"{path}/".startswith(f"/apis/{group}/") for group in self._groups)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until there are no more, and pass the end on."""
    try:
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
        writer.close()
    except OSError:
        writer.close()
