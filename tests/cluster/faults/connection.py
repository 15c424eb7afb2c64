"""One connection through the proxy: copies bytes both ways, and does what the fault says."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass

_CHUNK = 1 << 16
_PIECES = 20  # a second's bytes of a throttled connection go in so many pieces


@dataclass(frozen=True)
class Fault:
    """What is done to connections.

    Args:
        end: `reset` (RST) or `close` (FIN): how they end.
        after: bytes of the answer that go through before that, from now on; 0 is at once.
        inside_record: end in the middle of the server's next TLS record.
        delay: seconds that each byte comes later.
        rate: bytes a second, each way.
        stall: nothing goes through.
        refuse: nobody listens.
    """

    end: str = ""
    after: int | None = None
    inside_record: bool = False
    delay: float = 0
    rate: int | None = None
    stall: bool = False
    refuse: bool = False


PASS = Fault()


class State:
    """The fault of the moment, and what went through: one for all connections of a proxy."""

    def __init__(self) -> None:
        self.fault = PASS
        self.accepted = self.sent = self.received = 0
        self._changed = asyncio.Event()

    def change(self, fault: Fault) -> None:
        """Set another fault, and wake all who wait because of the last one."""
        self.fault = fault
        self._changed.set()
        self._changed = asyncio.Event()

    async def pause(self, seconds: float | None) -> None:
        """Wait so long (None: without end), or until the fault is another."""
        # Not wait_for: before Python 3.12 it loses a cancellation that comes with the event.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()


class Connection:
    """A client's connection and the one to the server that belongs to it.

    Args:
        client: the accepted socket.
        target: where the server listens.
        state: the proxy's.
    """

    def __init__(self, client: socket.socket, target: tuple[str, int], state: State) -> None:
        self.rude = False
        self._client, self._target, self._state = client, target, state
        self._records = Records()
        self._seen = state.fault
        self._answered = 0

    async def run(self) -> None:
        """Serve it until one side, or a fault, ends it."""
        server = socket.socket()
        for end in (self._client, server):
            end.setblocking(False)
        try:
            # Only when it has spoken: a client that is still connecting reports something else.
            first = await asyncio.get_running_loop().sock_recv(self._client, _CHUNK)
            if self._state.fault.after == 0:
                self.rude = self._state.fault.end == "reset"
            else:
                await self._copy(server, first)
        except* OSError:  # one side broke, or no server is there
            self.rude = True
        except* _Over:
            pass
        finally:
            for end in (self._client, server):
                if self.rude:
                    linger = struct.pack("ii", 1, 0)
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                else:  # with bytes unread, the kernel would send RST in place of FIN
                    with contextlib.suppress(OSError):
                        while end.recv(_CHUNK):
                            pass
                end.close()

    async def _copy(self, server: socket.socket, first: bytes) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(server, self._target)
        for end in (self._client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.TaskGroup() as tasks:
            for source, target in ((self._client, server), (server, self._client)):
                late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)
                if source is self._client:
                    late.put_nowait((loop.time(), first))
                tasks.create_task(self._read(source, late))
                tasks.create_task(self._write(target, late))

    async def _read(self, source: socket.socket, late: asyncio.Queue[tuple[float, bytes]]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            data = await loop.sock_recv(source, _CHUNK)
            await late.put((loop.time(), data))
            if not data:
                return

    async def _write(self, target: socket.socket, late: asyncio.Queue[tuple[float, bytes]]) -> None:
        loop = asyncio.get_running_loop()
        answer = target is self._client
        while True:
            came, data = await late.get()
            await self._hold(came)
            if not data:
                target.shutdown(socket.SHUT_WR)
                return
            while data:
                await self._hold(came)
                fault = self._state.fault
                size = len(data)
                if fault.rate:
                    size = min(size, max(1, fault.rate // _PIECES))
                end = self._end(data[:size]) if answer else None
                piece, data = data[: size if end is None else end], data[size:]
                self._count(piece, answer)  # before: who has received it may look at once
                await loop.sock_sendall(target, piece)
                if end is not None:
                    self.rude = fault.end == "reset"
                    raise _Over
                if fault.rate:
                    await asyncio.sleep(len(piece) / fault.rate)

    async def _hold(self, came: float) -> None:
        """Wait as long as the fault, which may change meanwhile, keeps back what came then."""
        loop = asyncio.get_running_loop()
        while True:
            fault = self._state.fault
            left = came + fault.delay - loop.time()
            held = fault.stall or fault.after == 0
            if not held and left <= 0:
                return
            await self._state.pause(None if held else left)

    def _end(self, data: bytes) -> int | None:
        """Return how many of these bytes of the answer are its last, or None if it goes on."""
        fault = self._state.fault
        if fault is not self._seen:
            self._seen, self._answered = fault, 0
        if fault.inside_record:
            return self._records.middle(data)
        if fault.after is not None and self._answered + len(data) >= fault.after:
            return fault.after - self._answered
        return None

    def _count(self, piece: bytes, answer: bool) -> None:
        if answer:
            self._answered += len(piece)
            self._records.feed(piece)
            self._state.received += len(piece)
        else:
            self._state.sent += len(piece)


class Records:
    """Follows TLS records: five bytes of which the last two tell how many bytes come behind."""

    def __init__(self) -> None:
        self._head = b""
        self._size = self._left = 0

    def feed(self, data: bytes) -> None:
        """Go on by these bytes."""
        while data:
            if self._left:
                step = min(self._left, len(data))
                self._left -= step
            else:
                step = min(5 - len(self._head), len(data))
                self._head += data[:step]
                if len(self._head) == 5:
                    self._size = self._left = int.from_bytes(self._head[3:])
                    self._head = b""
            data = data[step:]

    def middle(self, data: bytes) -> int | None:
        """Return a place in these bytes, the next of the stream, that is inside a record."""
        ahead = Records()
        ahead._head, ahead._size, ahead._left = self._head, self._size, self._left
        for place in range(1, len(data) + 1):
            ahead.feed(data[place - 1 : place])
            if 0 < ahead._left < ahead._size:
                return place
        return None


class _Over(Exception):
    """The fault ended the connection."""
