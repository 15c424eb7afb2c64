"""A real Jupyter Server on this machine's loopback, and a page on one of its kernels."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tornado.websocket import WebSocketClientConnection, websocket_connect

from tests.helpers.kernels import WAIT, Place


class Served:
    """A server of Jupyter's as a process: when it is ready, what it answers, its end.

    Who makes one sets these four.
    """

    url: str
    token: str
    log: Path
    process: subprocess.Popen[bytes]

    def wait_ready(self) -> None:
        """Wait until it answers; a page that is opened before is refused."""
        until = time.monotonic() + WAIT
        while True:
            with contextlib.suppress(OSError):
                self.ask("/api")
                return
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.05)

    def ask(self, path: str, content: Any = None, method: str | None = None) -> Any:
        """Send a request to the REST API; a content makes it a POST."""
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        request.add_header("Authorization", f"token {self.token}")
        with urllib.request.urlopen(request, timeout=WAIT) as answer:
            return json.loads(answer.read() or b"null")

    def close(self) -> None:
        """End it, and its kernels with it."""
        self.process.terminate()
        self.process.wait(WAIT)


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server(Served):
    """A Jupyter Server with its own limits in force, as users have it.

    Args:
        place: Whose server it is.
        port: Where it listens.
        options: Further ones of its command line.
    """

    def __init__(self, place: Place, port: int, *options: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.token = uuid.uuid4().hex
        self.log = place.folder / f"server-{port}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root"),
                    *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}"),
                    *("--ServerApp.port_retries=0", f"--IdentityProvider.token={self.token}"),
                    *(f"--ServerApp.root_dir={place.work}", "--ServerApp.jpserver_extensions={}"),
                    *options,
                ],
                env=place.env,
                stdout=output,
                stderr=output,
            )

    def start_kernel(self, name: str = "ciao") -> str:
        """Start a kernel and return its id."""
        return self.ask("/api/kernels", {"name": name, "path": ""})["id"]


@contextlib.contextmanager
def serving(place: Place, *options: str) -> Iterator[Server]:
    """A server for as long as the block runs."""
    server = Server(place, free_port(), *options)
    try:
        server.wait_ready()
        yield server
    finally:
        server.close()


class Page:
    """What a browser's page is to a kernel: one websocket with a session of its own."""

    def __init__(self, socket: WebSocketClientConnection) -> None:
        self.socket = socket
        self.session = uuid.uuid4().hex
        self.messages: list[dict[str, Any]] = []

    @classmethod
    async def open(cls, server: Server, kernel: str) -> Page:
        address = f"{server.url.replace('http', 'ws')}/api/kernels/{kernel}/channels"
        query = f"?session_id={uuid.uuid4().hex}&token={server.token}"
        return cls(await websocket_connect(address + query, max_message_size=1 << 30))

    async def send(self, kind: str, content: dict[str, Any], channel: str = "shell") -> str:
        """Send a request and return its id."""
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": kind,
            "username": "",
            "session": self.session,
            "date": "",
            "version": "5.3",
        }
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
        await self.socket.write_message(json.dumps({**message, "channel": channel, "buffers": []}))
        return str(header["msg_id"])

    async def execute(self, code: str) -> str:
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        return await self.send("execute_request", content)

    async def read(self, within: float = 60) -> dict[str, Any]:
        """Wait for the next message, whatever it answers."""
        raw = await asyncio.wait_for(self.socket.read_message(), within)
        assert raw is not None, "the server closed the page"
        message: dict[str, Any] = json.loads(raw)
        self.messages.append(message)
        return message

    def about(self, request: str) -> list[dict[str, Any]]:
        """All that came about a request."""
        return [m for m in self.messages if m["parent_header"].get("msg_id") == request]

    async def finish(self, request: str) -> list[dict[str, Any]]:
        """Wait for a request's reply and for idle; return all that came about it."""
        while True:
            kinds = [m["msg_type"] for m in self.about(request)]
            states = [m["content"].get("execution_state") for m in self.about(request)]
            if any(kind.endswith("_reply") for kind in kinds) and "idle" in states:
                return self.about(request)
            await self.read()

    def close(self) -> None:
        self.socket.close()
