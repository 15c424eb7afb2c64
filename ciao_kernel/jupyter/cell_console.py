"""Prompts below the output of a job cell, by Jupyter's input requests.

ipykernel's own ``input`` blocks the event loop, which shows the lines of the job meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import zmq

from ciao_kernel.plugins.console import PromptClosed

_PAUSE = 0.02
"""Seconds between two looks for the answer; the socket of the answers belongs to ipykernel."""
_END = "\x04"


class CellConsole:
    """The input of one cell (:class:`ciao_kernel.plugins.Console`).

    Args:
        kernel: Has the socket of the front end's answers.
        parent: The request of the cell.
        ident: The front end that sent it.
        write: Appends text to the cell.
    """

    def __init__(
        self, kernel: Any, parent: dict[str, Any], ident: Any, write: Callable[[str], Any]
    ) -> None:
        self._kernel, self._parent, self._ident = kernel, parent, ident
        self._write = write
        self._closing: asyncio.Event | None = None

    def write(self, text: str) -> None:
        """Show text at once."""
        self._write(text)

    def close(self) -> bool:
        """Close the prompt if one is open, and return whether it was; also in a signal handler."""
        closing = self._closing
        if closing is None or closing.is_set():
            return False
        self._kernel.io_loop.asyncio_loop.call_soon_threadsafe(closing.set)
        return True

    async def ask(self, prompt: str) -> str:
        """Return the line that the person types.

        Raises:
            PromptClosed: The cell was interrupted, or the person has typed the end of input.
        """
        closing = self._closing = asyncio.Event()
        try:
            while self._receive() is not None:
                pass  # the answer to a prompt that was taken back
            content = {"prompt": prompt, "password": False}
            sent = self._kernel.session.send(
                self._kernel.stdin_socket,
                "input_request",
                content,
                parent=self._parent,
                ident=self._ident,
            )
            while not closing.is_set():
                reply = self._receive()
                if reply is not None and _answers(reply, sent):
                    value = str(reply["content"].get("value", ""))
                    if value == _END:
                        break
                    return value
                await asyncio.sleep(_PAUSE)
            raise PromptClosed
        finally:
            self._closing = None

    def _receive(self) -> dict[str, Any] | None:
        """Return the next message of the front end, None if there is none."""
        kernel = self._kernel
        try:
            _, message = kernel.session.recv(kernel.stdin_socket, zmq.NOBLOCK)
        except zmq.ZMQError:
            return None
        except Exception:  # not signed by this session, for example
            kernel.log.warning("an invalid message came as an answer", exc_info=True)
            return {}
        received: dict[str, Any] = message
        return received


def _answers(reply: dict[str, Any], sent: dict[str, Any]) -> bool:
    """Return whether a message answers a request; some clients do not tell which one they mean."""
    if not isinstance(reply.get("content"), dict):
        return False
    meant = (reply.get("parent_header") or {}).get("msg_id")
    return meant in (None, "", sent["header"]["msg_id"])
