"""Reads a log before it is asked for, up to a limit: its request does not wait for other logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

_LEAST = 1 << 18
"""Bytes of a piece: a node sends each line by itself, and a cell shows each piece in a message."""


class ReadAhead:
    """Reads pieces in a task, which begins at once.

    Args:
        pieces: The pieces. They are closed.
        limit: Bytes that are held; then reading waits.
    """

    def __init__(self, pieces: AsyncGenerator[bytes, None], limit: int) -> None:
        self._source, self._limit = pieces, limit
        self._held = asyncio.Queue[bytes | None]()
        self._size = 0
        self._has_room = asyncio.Event()
        self._task = asyncio.create_task(self._fill())

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the pieces, small ones together; an error comes after the pieces before it."""
        taken, size = list[bytes](), 0
        while (piece := await self._held.get()) is not None:
            taken.append(piece)
            size += len(piece)
            self._size -= len(piece)
            self._has_room.set()
            if size >= _LEAST:
                yield b"".join(taken)
                taken, size = [], 0
        if taken:
            yield b"".join(taken)
        await self._task

    async def close(self) -> None:
        """End the reading."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _fill(self) -> None:
        try:
            async with aclosing(self._source) as pieces:
                async for piece in pieces:
                    self._held.put_nowait(piece)
                    self._size += len(piece)
                    while self._size >= self._limit:
                        self._has_room.clear()
                        await self._has_room.wait()
        finally:
            self._held.put_nowait(None)
