"""The connection of a Jupyter Server to a gateway: which protocol each side is spoken to in."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from jupyter_server.services.kernels.connection import base
from tornado.websocket import WebSocketHandler

from ciao_kernel.jupyter.gateway import GatewayConnection

V1 = "v1.kernel.websocket.jupyter.org"
PARTS: dict[str, Any] = {
    "header": {"msg_type": "execute_request", "msg_id": "1"},
    "parent_header": {},
    "metadata": {},
    "content": {"code": "print('é')"},
}
# Without types.
_pack: Any = base.serialize_msg_to_ws_v1
_unpack: Any = base.deserialize_msg_from_ws_v1
PACKED = _pack([json.dumps(part).encode() for part in PARTS.values()], "shell")


class Browser(WebSocketHandler):
    """The server's end of a browser's socket; it keeps what is written."""

    selected_subprotocol: Any = None

    def __init__(self, protocol: str | None) -> None:
        self.selected_subprotocol = protocol
        self.got: list[tuple[Any, bool]] = []

    def write_message(self, message: Any, binary: bool = False) -> Any:
        self.got.append((message, binary))


class Connection(GatewayConnection):
    """A connection to a gateway that keeps what it gets."""

    def __init__(self, protocol: str | None) -> None:
        self.to_gateway: list[Any] = []
        self.browser = Browser(protocol)
        super().__init__(websocket_handler=self.browser)

    def _write_message(self, message: Any) -> None:
        self.to_gateway.append(message)


def test_the_gateway_gets_json_of_a_browser_that_speaks_the_newer_protocol() -> None:
    connection = Connection(V1)
    connection.handle_incoming_message(PACKED)
    (message,) = connection.to_gateway
    assert json.loads(message) == {**PARTS, "channel": "shell", "buffers": []}


@pytest.mark.parametrize("message", [json.dumps(PARTS), json.dumps(PARTS).encode(), b"\0\0\0\2"])
@pytest.mark.parametrize("protocol", [None, ""])
def test_without_a_protocol_a_message_passes_as_it_is(
    protocol: str | None, message: str | bytes
) -> None:
    connection = Connection(protocol)
    connection.handle_incoming_message(message)
    assert connection.to_gateway == [message]


def test_a_message_that_comes_before_the_connection_is_kept_as_it_is() -> None:
    async def main() -> None:
        connection = Connection(V1)
        pending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection.ws_future = pending
        connection.handle_incoming_message(_pack([*_packed(), b"\x00\xff"], "shell"))
        assert connection.to_gateway == []
        connection.ws_future = None
        pending.set_result(None)
        await asyncio.sleep(0.05)
        (message,) = connection.to_gateway
        assert base.deserialize_binary_message(message)["buffers"] == [b"\x00\xff"]

    asyncio.run(main())


def _packed() -> list[bytes]:
    return [json.dumps(part).encode() for part in PARTS.values()]


def test_the_browser_gets_what_it_has_asked_for() -> None:
    message = json.dumps({**PARTS, "channel": "iopub", "buffers": []})
    plain = Connection(None)
    plain.handle_outgoing_message(message)
    assert plain.browser.got == [(message, False)]
    newer = Connection(V1)
    newer.handle_outgoing_message(message)
    ((data, binary),) = newer.browser.got
    assert binary
    channel, parts = _unpack(data)
    assert channel == "iopub"
    assert [json.loads(part) for part in parts] == list(PARTS.values())
