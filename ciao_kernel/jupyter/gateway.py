"""Opt-in connection class for a Jupyter Server that is a client of Enterprise Gateway.

The server accepts a browser's connection without a sub-protocol, which Chromium rejects.
JupyterLab tries again with the same session, but the gateway no longer answers it: a new kernel
stays "unknown" for ever. With this class the server speaks the browser's protocol to the browser,
and the gateway's protocol to the gateway. Binary buffers, which widgets send, pass in both
directions; the server's own class would stop reading at the first buffer::

    jupyter lab --GatewayClient.url=http://…
        --ServerApp.kernel_websocket_connection_class=ciao_kernel.gateway.GatewayConnection

No other part of ciao imports this module, and this module imports no other part of ciao.

Both framings are described in Jupyter Client's documentation, "Messaging": the older framing in
"wire protocol over WebSocket", the newer framing as ``v1.kernel.websocket.jupyter.org``.
"""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

from jupyter_client.jsonutil import json_default
from jupyter_server.gateway.connections import GatewayWebSocketConnection
from jupyter_server.services.kernels.connection import base
from tornado.websocket import WebSocketClosedError
from traitlets import Unicode

# These functions have no type annotations.
_unpack: Any = base.deserialize_msg_from_ws_v1
_pack: Any = base.serialize_msg_to_ws_v1
_unpack_older: Any = base.deserialize_binary_message
_pack_older: Any = base.serialize_binary_message

_PARTS = ("header", "parent_header", "metadata", "content")


class GatewayConnection(GatewayWebSocketConnection):
    """Connection of one browser to one kernel, through the gateway."""

    kernel_ws_protocol = Unicode("v1.kernel.websocket.jupyter.org", allow_none=True, config=True)

    # ------------------------------------------------------------------- to the gateway

    def handle_incoming_message(self, message: Any) -> None:
        """Forward a message of the browser in the framing that the gateway expects."""
        if self.ws is None and self.ws_future is not None:
            # Not connected yet: the message is kept unchanged, and passes here again later.
            super().handle_incoming_message(message)
            return
        # A client without a sub-protocol may send bytes too, in the gateway's own framing.
        if isinstance(message, bytes) and self.websocket_handler.selected_subprotocol:
            channel, parts = _unpack(message)
            content = {name: json.loads(part) for name, part in zip(_PARTS, parts, strict=False)}
            content |= {"channel": channel, "buffers": parts[len(_PARTS) :]}
            message = _pack_older(content) if content["buffers"] else json.dumps(content)
        super().handle_incoming_message(message)

    def _write_message(self, message: Any) -> None:
        """Send to the gateway; bytes that start like JSON are sent as text."""
        if isinstance(message, str) or message[:1] == b"{":
            super()._write_message(message)  # type: ignore[no-untyped-call]
        elif self.ws is not None and not self.disconnected:
            with contextlib.suppress(WebSocketClosedError):
                self.ws.write_message(message, binary=True)

    # ----------------------------------------------------------------- from the gateway

    def _connection_done(self, fut: Any) -> None:
        """Convert messages with buffers to text, which the server's loop expects."""
        super()._connection_done(fut)  # type: ignore[no-untyped-call]
        if self.ws is None:
            return
        read: Any = self.ws.read_message

        async def read_text() -> Any:
            message = await read()
            return _as_text(message) if isinstance(message, bytes) else message

        self.ws.read_message = read_text  # type: ignore[method-assign, assignment]

    def handle_outgoing_message(self, incoming_msg: str, *args: Any) -> None:
        """Forward a message of the gateway in the protocol that the browser requested."""
        message = json.loads(incoming_msg)
        buffers = [base64.b64decode(one) for one in message.get("buffers") or ()]
        if self.websocket_handler.selected_subprotocol:
            parts = [json.dumps(message[name]).encode() for name in _PARTS]
            data = _pack([*parts, *buffers], message["channel"])
        elif buffers:
            data = _pack_older({**message, "buffers": buffers})
        else:
            super().handle_outgoing_message(incoming_msg, *args)
            return
        with contextlib.suppress(WebSocketClosedError):  # the page was closed meanwhile
            self.websocket_handler.write_message(data, binary=True)


def _as_text(data: bytes) -> str:
    """Return a message with buffers as JSON, with the buffers in base64."""
    message = _unpack_older(data)
    message["buffers"] = [base64.b64encode(one).decode() for one in message["buffers"]]
    return json.dumps(message, default=json_default)
