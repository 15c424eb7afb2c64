"""A proxy before the API server (or a registry) that does harm to connections on demand.

It copies bytes and understands none: TLS goes through it, and client and server stay sure of each
other. The API server's certificate names 127.0.0.1, so a kubeconfig with the proxy's URL is right.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

from tests.cluster.faults.connection import PASS, Connection, Fault, State
from tests.cluster.layout import Layout

_WAIT = 10  # seconds for the loop's thread to do a thing that takes milliseconds


@dataclass(frozen=True)
class Traffic:
    """What went through a proxy since it began.

    Args:
        accepted: connections that clients made.
        present: connections that are open now.
        sent: bytes that reached the server.
        received: bytes of answers that reached clients.
    """

    accepted: int
    present: int
    sent: int
    received: int


class Proxy:
    """A proxy on a free port of this machine. One fault at a time; each call replaces the last.

    A fault acts at once, on connections that are there as on those to come. Used as a context
    manager: at its end it listens no more, and its connections are reset.

    Args:
        at: the cluster.
        port: of the node, that it stands before; the API server's by default.
    """

    def __init__(self, at: Layout, port: int = 6443) -> None:
        self._at = at
        self._target = (at.address, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._state = State()
        self._connections: dict[Connection, asyncio.Task[None]] = {}
        self._accepting: asyncio.Task[None] | None = None
        self._socket = _bound()
        self.port: int = self._socket.getsockname()[1]

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"https://127.0.0.1:{self.port}"

    def kubeconfig(self, file: Path, like: Path | None = None) -> Path:
        """Write a kubeconfig that goes through the proxy, and return its path.

        Args:
            file: where.
            like: the kubeconfig to take all the rest from; the administrator's by default.
        """
        content = json.loads((like or self._at.kubeconfig).read_text())
        for entry in content["clusters"]:
            entry["cluster"]["server"] = self.url
        file.touch(mode=0o600)
        file.write_text(json.dumps(content, indent=2))
        return file

    @property
    def traffic(self) -> Traffic:
        """What went through so far."""
        state = self._state
        return Traffic(state.accepted, len(self._connections), state.sent, state.received)

    def pass_on(self) -> None:
        """Do no harm. Connections that were slow or silent go on; nothing of theirs is lost."""
        self._set(PASS)

    def reset(self, *, after: int | None = None, inside_record: bool = False) -> None:
        """Break connections with RST, as a crashed server or a firewall does.

        Args:
            after: only when so many bytes of the answer went through, on each connection.
            inside_record: only in the middle of the next TLS record that the server sends.
        """
        at_once = after is None and not inside_record
        self._set(Fault(end="reset", after=0 if at_once else after, inside_record=inside_record))

    def close(self) -> None:
        """End connections in order, with FIN, as a server that shuts down does."""
        self._set(Fault(end="close", after=0))

    def truncate(self, after: int) -> None:
        """End each connection, with FIN, when so many bytes of the answer went through."""
        self._set(Fault(end="close", after=after))

    def delay(self, seconds: float) -> None:
        """Let every byte arrive so much later, both ways; as many as before fit through."""
        self._set(Fault(delay=seconds))

    def throttle(self, rate: int) -> None:
        """Let so many bytes a second through, each way, on each connection."""
        self._set(Fault(rate=rate))

    def stall(self) -> None:
        """Accept connections, and let no byte through: what a lost network looks like."""
        self._set(Fault(stall=True))

    def refuse(self) -> None:
        """Listen no more, and reset what is there: a server that is gone.

        The port stays taken, so that nobody else gets it; any other fault listens on it again.
        """
        self._set(Fault(end="reset", after=0, refuse=True))

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._call(self._listen)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._call(self._shut)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WAIT)
        self._loop.close()
        self._socket.close()

    def _set(self, fault: Fault) -> None:
        def change() -> None:
            self._state.change(fault)
            if fault.after == 0:
                for connection, task in self._connections.items():
                    connection.rude = fault.end == "reset"
                    task.cancel()
            if fault.refuse:
                self._deafen()
            elif self._accepting is None:
                self._listen()

        self._call(change)

    def _call(self, work: Callable[[], None]) -> None:
        """Do something in the loop's thread, and wait until what it cancelled has ended."""

        async def done() -> None:
            work()
            ending = [task for task in self._connections.values() if task.cancelling()]
            if ending:
                await asyncio.wait(ending)

        asyncio.run_coroutine_threadsafe(done(), self._loop).result(_WAIT)

    def _listen(self) -> None:
        self._socket.listen(128)
        self._accepting = self._loop.create_task(self._accept())

    def _deafen(self) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
            self._accepting = None
            # It does not listen then, yet keeps its port: clients are refused (Linux).
            self._socket.shutdown(socket.SHUT_RDWR)

    def _shut(self) -> None:
        self._deafen()
        for connection, task in self._connections.items():
            connection.rude = True
            task.cancel()

    async def _accept(self) -> None:
        while True:
            client, _ = await self._loop.sock_accept(self._socket)
            self._state.accepted += 1
            connection = Connection(client, self._target, self._state)
            task = self._loop.create_task(connection.run())
            self._connections[connection] = task
            task.add_done_callback(partial(self._forget, connection))

    def _forget(self, connection: Connection, _: asyncio.Task[None]) -> None:
        del self._connections[connection]


def _bound() -> socket.socket:
    """Return a socket that has a port for good.

    Its number is given, not left to the kernel: a port that the kernel chose is lost with the
    first `shutdown`.
    """
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", 0))
        bound.bind(free.getsockname())  # both have it, so that no other process gets it in between
    bound.setblocking(False)
    return bound
