"""An opt-in setting for a Jupyter Server that is a client of Enterprise Gateway.

The server greets a browser without a sub-protocol, which Chromium does not put up with. JupyterLab
tries again with the same session, to which the gateway does not answer any more: a fresh kernel
stays "unknown" for ever. With this class the server speaks the browser's protocol to the browser,
and the gateway's to the gateway::

    jupyter lab --GatewayClient.url=http://…
        --ServerApp.kernel_websocket_connection_class=ciao_kernel.gateway.GatewayConnection

Nothing else of ciao imports this module, and it needs nothing of ciao.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from jupyter_server.gateway.connections import GatewayWebSocketConnection
from jupyter_server.services.kernels.connection import base
from tornado.websocket import WebSocketClosedError
from traitlets import Unicode

# Without types.
_unpack: Any = base.deserialize_msg_from_ws_v1
_pack: Any = base.serialize_msg_to_ws_v1

_PARTS = ("header", "parent_header", "metadata", "content")


class GatewayConnection(GatewayWebSocketConnection):
    """One browser's connection to one kernel, over the gateway.

    Binary buffers, which some widgets send, get lost, as they do without it.
    """

    kernel_ws_protocol = Unicode("v1.kernel.websocket.jupyter.org", allow_none=True, config=True)

    def handle_incoming_message(self, message: Any) -> None:
        """Pass a message of the browser on as the JSON that the gateway expects."""
        # Who speaks no sub-protocol may send bytes too: JSON, or JSON with buffers behind it.
        if isinstance(message, bytes) and self.websocket_handler.selected_subprotocol:
            channel, parts = _unpack(message)
            content = {name: json.loads(part) for name, part in zip(_PARTS, parts, strict=False)}
            message = json.dumps({**content, "channel": channel, "buffers": []})
        super().handle_incoming_message(message)

    def handle_outgoing_message(self, incoming_msg: str, *args: Any) -> None:
        """Pass a message of the gateway on in the protocol that the browser has asked for."""
        if not self.websocket_handler.selected_subprotocol:
            super().handle_outgoing_message(incoming_msg, *args)
            return
        message = json.loads(incoming_msg)
        parts = [json.dumps(message[name]).encode() for name in _PARTS]
        data = _pack(parts, message["channel"])
        with contextlib.suppress(WebSocketClosedError):  # the page was closed meanwhile
            self.websocket_handler.write_message(data, binary=True)
