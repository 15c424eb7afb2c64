"""A Jupyter Server whose kernels are another server's: what passes between browser and kernel."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from jupyter_server.services.kernels.connection import base
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from tests.helpers.kernels import Place
from tests.helpers.servers import Server, serving

V1 = "v1.kernel.websocket.jupyter.org"
CLASS = "--ServerApp.kernel_websocket_connection_class=ciao_kernel.gateway.GatewayConnection"

# A widget in small: it opens, sends buffers, and sends back what it gets, twice as long.
WIDGET = """
from comm import create_comm
widget = create_comm(target_name='test', data={'n': 1}, buffers=[b'\\x00\\xff', b'second'])
def received(message):
    widget.send({'n': 2}, buffers=[bytes(one) * 2 for one in message['buffers']])
widget.on_msg(received)
"""

# Without types.
_pack_v1: Any = base.serialize_msg_to_ws_v1
_unpack_v1: Any = base.deserialize_msg_from_ws_v1
_pack: Any = base.serialize_binary_message
_unpack: Any = base.deserialize_binary_message
NAMES = ("header", "parent_header", "metadata", "content")


class Browser:
    """A page that speaks one of the two protocols, and knows buffers."""

    def __init__(self, socket: WebSocketClientConnection) -> None:
        self.socket = socket
        self.newer = socket.selected_subprotocol == V1

    async def send(self, kind: str, content: dict[str, Any], *buffers: bytes) -> str:
        header = {"msg_id": uuid.uuid4().hex, "msg_type": kind, "session": "page", "version": "5.3"}
        header |= {"username": "", "date": "2026-01-01T00:00:00Z"}
        message = dict(zip(NAMES, (header, {}, {}, content), strict=True))
        if self.newer:
            parts = [json.dumps(message[name]).encode() for name in NAMES]
            await self.socket.write_message(_pack_v1([*parts, *buffers], "shell"), binary=True)
        else:
            data = _pack({**message, "channel": "shell", "buffers": buffers})
            await self.socket.write_message(data, binary=True)
        return str(header["msg_id"])

    async def wait(self, kind: str) -> dict[str, Any]:
        """The next message of a kind, with its buffers as bytes."""
        async with asyncio.timeout(60):
            while True:
                raw = await self.socket.read_message()
                assert raw is not None, "the server closed the page"
                message = self._read(raw)
                if message["header"]["msg_type"] == kind:
                    return message

    def _read(self, raw: str | bytes) -> dict[str, Any]:
        if isinstance(raw, str):
            text: dict[str, Any] = json.loads(raw)
            return text
        if not self.newer:
            older: dict[str, Any] = _unpack(raw)
            return older
        _, parts = _unpack_v1(raw)
        message = {name: json.loads(part) for name, part in zip(NAMES, parts, strict=False)}
        return {**message, "buffers": parts[4:]}


async def _open(server: Server, kernel: str, protocol: str) -> Browser:
    address = f"{server.url.replace('http', 'ws')}/api/kernels/{kernel}/channels"
    request = HTTPRequest(f"{address}?session_id=page&token={server.token}")
    return Browser(await websocket_connect(request, subprotocols=[protocol] if protocol else None))


def test_buffers_of_widgets_pass_in_both_directions(place: Place) -> None:
    async def talk(client: Server, protocol: str) -> None:
        kernel = client.start_kernel()
        page = await _open(client, kernel, protocol)
        code = {"code": WIDGET, "silent": False, "store_history": True, "allow_stdin": False}
        await page.send("execute_request", code)
        opened = await page.wait("comm_open")
        assert [bytes(one) for one in opened["buffers"]] == [b"\x00\xff", b"second"]
        comm = {"comm_id": opened["content"]["comm_id"], "data": {}}
        await page.send("comm_msg", comm, b"\xfe{", b"")
        answer = await page.wait("comm_msg")
        assert answer["content"]["data"] == {"n": 2}
        assert [bytes(one) for one in answer["buffers"]] == [b"\xfe{\xfe{", b""]
        # The page hears of its kernel as before.
        await page.send("kernel_info_request", {})
        await page.wait("kernel_info_reply")
        page.socket.close()
        client.ask(f"/api/kernels/{kernel}", method="DELETE")

    async def main(client: Server) -> None:
        for protocol in (V1, ""):
            await talk(client, protocol)

    _as_client(place, main)


def _as_client(place: Place, main: Callable[[Server], Coroutine[Any, Any, None]]) -> None:
    """Run with a server whose gateway is a second one: to its client each is like the other."""
    with serving(place) as gateway:
        options = (f"--GatewayClient.url={gateway.url}", CLASS)
        token = f"--GatewayClient.auth_token={gateway.token}"
        with serving(place, *options, token) as client:
            asyncio.run(main(client))
