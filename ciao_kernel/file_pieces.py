"""Reads a long file in pieces, off the event loop: a file server may let each of them wait."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator

_PIECE = 1 << 18


async def read(file: int, start: int, end: int) -> AsyncGenerator[bytes, None]:
    """Yield a part of an open file; what is appended meanwhile is not waited for.

    Args:
        file: Its descriptor.
        start: The first byte.
        end: The byte after the last one; the file may end earlier.
    """
    while start < end:
        data = await asyncio.to_thread(os.pread, file, min(_PIECE, end - start), start)
        if not data:
            return
        start += len(data)
        yield data


def tail(file: int, end: int, lines: int) -> int:
    """Return where the last lines of an open file begin, without reading those before them.

    Args:
        file: Its descriptor.
        end: Its size.
        lines: Number of lines; the final one may lack its line feed.
    """
    if lines <= 0:
        return end
    if end and os.pread(file, 1, end - 1) == b"\n":
        end -= 1  # it ends the final line
    while end > 0:
        begin = max(0, end - _PIECE)
        data = os.pread(file, end - begin, begin)
        feeds = data.count(b"\n")
        if feeds >= lines:
            place = len(data)
            for _ in range(lines):
                place = data.rfind(b"\n", 0, place)
            return begin + place + 1
        lines -= feeds
        end = begin
    return 0
