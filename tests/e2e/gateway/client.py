"""A client of Enterprise Gateway or Jupyter Server: kernels by REST, cells by WebSocket."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from typing import Any

import websocket
from jupyter_server.services.kernels.connection import base

from tests.helpers.kernels import Request

WAIT = 120.0
"""Seconds that any single thing may take; a test that waits so long has failed."""


V1 = "v1.kernel.websocket.jupyter.org"
_PARTS = ("header", "parent_header", "metadata", "content")


class Api:
    """The REST API of a server.

    Args:
        url: Its address.
        token: Its password.
        protocol: Of WebSockets, which the server has to agree to, as a browser has it; "" leaves
            it to the server.
    """

    def __init__(self, url: str, token: str, protocol: str = "") -> None:
        self.url, self.token, self.protocol = url, token, protocol

    def ask(self, method: str, path: str, content: Any = None) -> Any:
        """Send a request and return what the answer holds.

        Raises:
            OSError: It was refused, or nobody is there.
        """
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        request.add_header("Authorization", f"token {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            error.add_note(error.read().decode())
            raise

    def answers(self) -> bool:
        """Whether it takes requests."""
        with contextlib.suppress(OSError):
            self.ask("GET", "/api/kernels")
            return True
        return False

    def kernels(self) -> dict[str, str]:
        """The kernels that it knows, and the state of each."""
        return {one["id"]: one["execution_state"] for one in self.ask("GET", "/api/kernels")}

    def start(self, name: str, **env: str) -> RemoteKernel:
        """Start a kernel, and wait until it answers."""
        answer = self.ask("POST", "/api/kernels", {"name": name, "env": env})
        return RemoteKernel(self, answer["id"])


class RemoteKernel:
    """A kernel, and one connection to it.

    Args:
        api: Who has started it.
        id: Its number there.
    """

    def __init__(self, api: Api, id: str) -> None:
        self.api, self.id = api, id
        self.requests: dict[str, Request] = {}
        self.connect()

    def connect(self) -> None:
        """Open the connection, and wait until the kernel answers."""
        self.session = uuid.uuid4().hex
        address = self.api.url.replace("http", "ws", 1)
        self.socket = websocket.create_connection(
            f"{address}/api/kernels/{self.id}/channels?session_id={self.session}",
            header=[f"Authorization: token {self.api.token}"],
            subprotocols=[self.api.protocol] if self.api.protocol else None,
            timeout=WAIT,
        )
        assert (self.socket.getsubprotocol() or "") == self.api.protocol
        # Several times: what comes before the kernel's sockets are connected is lost.
        until, answer = time.monotonic() + WAIT, None
        while answer is None or answer.reply is None:
            answer = self._send("kernel_info_request", {})
            with contextlib.suppress(AssertionError):
                self.wait(lambda one=answer: one.reply is not None, "the kernel", 2)
            assert time.monotonic() < until, f"the kernel {self.id} does not answer"

    def close(self) -> None:
        self.socket.close()

    def execute(self, code: str) -> Request:
        """Send a cell, and do not wait."""
        content = {"code": code, "silent": False, "store_history": True, "stop_on_error": True}
        return self._send("execute_request", {**content, "allow_stdin": False}, code)

    def run(self, code: str, within: float = WAIT) -> Request:
        """Run a cell to its end."""
        return self.finish(self.execute(code), within)

    def value(self, code: str) -> str:
        """Run a cell that prints."""
        done = self.run(code)
        assert done.status == "ok", done.messages
        return done.text.strip()

    def finish(self, request: Request, within: float = WAIT) -> Request:
        self.wait(lambda: request.done, f"the end of {request.code!r}: {request.text}", within)
        return request

    def wait_text(self, request: Request, text: str, within: float = WAIT) -> None:
        """Wait until a cell has shown a text."""
        self.wait(lambda: text in request.text or request.done, f"{text!r}", within)
        assert text in request.text, (request.text, request.of("error"))

    def wait(self, condition: Callable[[], object], what: str, within: float = WAIT) -> None:
        """Take messages until a condition holds."""
        until = time.monotonic() + within
        while not condition():
            assert time.monotonic() < until, f"waited {within:g} s for {what}"
            self.take(0.1)

    def take(self, seconds: float) -> None:
        """Sort what comes within a time."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                text = self.socket.recv()
            except websocket.WebSocketTimeoutException:
                return
            if isinstance(text, bytes):
                channel, parts = base.deserialize_msg_from_ws_v1(text)
                message = dict(zip(_PARTS, map(json.loads, parts), strict=False))
                kind = message["header"]["msg_type"]
                self._sort({**message, "msg_type": kind, "channel": channel})
            elif text:
                self._sort(json.loads(text))

    def interrupt(self) -> None:
        """The stop button."""
        self.api.ask("POST", f"/api/kernels/{self.id}/interrupt", {})

    def restart(self) -> None:
        """The restart button; what was asked before is forgotten."""
        self.api.ask("POST", f"/api/kernels/{self.id}/restart", {})
        self.close()
        self.connect()

    def delete(self) -> None:
        """Shut the kernel down."""
        self.close()
        self.api.ask("DELETE", f"/api/kernels/{self.id}")

    def _send(self, kind: str, content: dict[str, Any], code: str = "") -> Request:
        number = uuid.uuid4().hex
        header = {
            "msg_id": number, "msg_type": kind, "session": self.session,
            "username": "", "version": "5.3", "date": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        message = {
            "header": header, "parent_header": {}, "metadata": {}, "content": content,
            "channel": "shell", "buffers": [],
        }  # fmt: skip
        self.requests[number] = Request(number, code)
        if self.api.protocol:
            parts = [json.dumps(message[name]).encode() for name in _PARTS]
            self.socket.send_binary(base.serialize_msg_to_ws_v1(parts, "shell"))
        else:
            self.socket.send(json.dumps(message))
        return self.requests[number]

    def _sort(self, message: dict[str, Any]) -> None:
        request = self.requests.get(message["parent_header"].get("msg_id", ""))
        if request is None:
            return
        if message["channel"] == "iopub":
            request.messages.append(message)
        elif message["channel"] == "shell":
            request.reply = message


def refusal(start: Callable[[], object]) -> str:
    """What a server says that refuses to start a kernel."""
    try:
        start()
    except urllib.error.HTTPError as error:
        return f"{error.code} {' '.join(error.__notes__)}"
    return ""
