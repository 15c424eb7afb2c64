"""A relay before a registry that counts requests, and the bytes of what they bring."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator
from typing import BinaryIO

_PIECE = 1 << 16


class Wire(socketserver.ThreadingTCPServer):
    """The relay; clients speak http to :attr:`host` as they would to the registry.

    Args:
        registry: Host and port of the registry.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, registry: str) -> None:
        super().__init__(("127.0.0.1", 0), _Client)
        name, _, port = registry.partition(":")
        self.goal = name, int(port)
        self.requests = self.sent = 0
        """Requests, and the bytes of their bodies, since :meth:`since` was asked last."""

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def since(self) -> tuple[int, int]:
        """Requests and bytes since the last time."""
        found = self.requests, self.sent
        self.requests = self.sent = 0
        return found


class _Client(socketserver.BaseRequestHandler):
    """One connection of a client."""

    server: Wire

    def handle(self) -> None:
        near: socket.socket = self.request
        with socket.create_connection(self.server.goal) as far, contextlib.suppress(OSError):
            threading.Thread(target=_answers, args=(far, near), daemon=True).start()
            reader = near.makefile("rb")
            while head := _head(reader):
                self.server.requests += 1
                far.sendall(head)
                for piece, counts in _body(reader, head.lower()):
                    self.server.sent += len(piece) if counts else 0
                    far.sendall(piece)


def _head(reader: BinaryIO) -> bytes:
    """A request up to its empty line; nothing at the end of a connection."""
    head = b""
    while line := reader.readline():
        head += line
        if line == b"\r\n":
            return head
    return b""


def _body(reader: BinaryIO, head: bytes) -> Iterator[tuple[bytes, bool]]:
    """The pieces of a request's body, and whether they are more than its packing."""
    if b"\r\ntransfer-encoding: chunked\r\n" in head:
        while True:
            line = reader.readline()
            yield line, False
            size = int(line.partition(b";")[0], 16)
            yield from _pieces(reader, size)
            yield reader.readline(), False
            if not size:
                return
    length = head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
    yield from _pieces(reader, int(length or 0))


def _pieces(reader: BinaryIO, size: int) -> Iterator[tuple[bytes, bool]]:
    while size and (piece := reader.read(min(size, _PIECE))):
        size -= len(piece)
        yield piece, True


def _answers(far: socket.socket, near: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := far.recv(_PIECE):
            near.sendall(piece)
        near.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def counted(registry: str) -> Iterator[Wire]:
    """A relay for as long as the block runs."""
    wire = Wire(registry)
    thread = threading.Thread(target=wire.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield wire
    finally:
        wire.shutdown()
        thread.join()
        wire.server_close()
