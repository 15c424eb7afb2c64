"""The log of one container, served as a kubelet serves it.

What a reader has to bear (kubelet, pkg/kubelet/kuberuntime/logs/logs.go): lines before
``sinceTime`` are left out, and that time has whole seconds only; a reader that follows goes on in
the next file after a rotation, and a new request gets the newest file alone.
"""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime

_PIECE = 32 * 1024
"""Bytes of one piece of an answer; it may end anywhere in a line."""


def stamp(nanoseconds: int) -> bytes:
    """Return a time since the epoch as it stands before a line."""
    second, rest = divmod(nanoseconds, 1_000_000_000)
    return _second(second) + b".%09dZ " % rest


def _second(seconds: int) -> bytes:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()


class _File:
    """One file of the log, and the next one after its rotation."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.next: _File | None = None
        self._seconds: list[bytes] = []
        self._places: list[int] = []

    def add(self, lines: Iterable[tuple[int, bytes]]) -> None:
        last, text = -1, b""
        for nanoseconds, line in lines:
            second, rest = divmod(nanoseconds, 1_000_000_000)
            if second != last:
                last, text = second, _second(second)
                if not self._seconds or self._seconds[-1] < text:
                    self._seconds.append(text)
                    self._places.append(len(self.data))
            self.data += b"%b.%09dZ %b\n" % (text, rest, line)

    def tail(self, lines: int) -> int:
        """Return where the last lines begin."""
        at = len(self.data)
        for _ in range(lines):
            at = self.data.rfind(b"\n", 0, max(0, at - 1)) + 1
        return at

    def place(self, since: bytes) -> int:
        """Return where the lines begin that are not older; stamps here never step back."""
        number = bisect.bisect_left(self._seconds, since)
        return self._places[number] if number < len(self._places) else len(self.data)


class PodLog:
    """What one container writes. Used in one event loop alone."""

    def __init__(self) -> None:
        self._file = _File()
        self._ended = False
        self._changed = asyncio.Event()

    def write(self, lines: Iterable[tuple[int, bytes]]) -> None:
        """Add lines, each with its time in nanoseconds since the epoch."""
        self._file.add(lines)
        self._wake()

    def rotate(self) -> None:
        """Begin a new file."""
        self._file.next = _File()
        self._file = self._file.next
        self._wake()

    def end(self) -> None:
        """Let answers end: the container has."""
        self._ended = True
        self._wake()

    async def answer(
        self, since: str, *, follow: bool, tail: int | None = None
    ) -> AsyncIterator[bytes]:
        """Yield what a request gets.

        Args:
            since: The query's ``sinceTime``, or "".
            tail: The query's ``tailLines``, in the newest file alone.
            follow: Whether the answer lasts until the container ends.
        """
        file = self._file
        at = file.place(since[:19].encode()) if since else 0
        if tail is not None:
            at = max(at, file.tail(tail))
        while True:
            if at < len(file.data):
                piece = bytes(file.data[at : at + _PIECE])
                at += len(piece)
                yield piece
            elif file.next is not None:
                file, at = file.next, 0
            elif self._ended or not follow:
                return
            else:
                await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
