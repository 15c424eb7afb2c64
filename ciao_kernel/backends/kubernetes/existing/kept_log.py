"""Completes a log that has lost its beginning: a node keeps the newest 10 MiB of a container's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from ciao_kernel import file_pieces, log
from ciao_kernel.backends.kubernetes.following import saved_log

_log = logging.getLogger(__name__)

_PIECE = 512
"""Bytes that are compared at once."""
_MOST_COMPARED = 1_000
"""Places of the node's log in the kept one that are compared byte by byte."""


def complete(data: bytes, kept: Path, size: int) -> bytes:
    """Return the log of a warm replica with the lines that the node has dropped.

    Args:
        data: The log from the cluster.
        kept: The log that a follower saved on this machine; it may lack the newest lines.
        size: Its bytes before the log from the cluster was asked for.
    """
    from ciao_kernel.delivery.warm import marks  # late: other logs need nothing of it

    if marks.is_whole(data):
        return data
    with log.ignored(_log, "reading a saved log", OSError), kept.open("rb") as file:
        saved = file.read(size)
        # Without an overlap, lines between them are lost.
        return saved[: _overlap(data, saved)] + data
    return data


def _overlap(data: bytes, kept: bytes) -> int:
    """Return where in a kept log its longest end starts that is the beginning of the node's log.

    :func:`~.saved_log.beginning` finds only a place that is sure. But without its first lines, the
    log of a warm replica does not tell its runs: here the longest overlap is likely enough.

    Args:
        data: The node's log.
        kept: The kept log; its length is returned if no end of it is such a beginning.
    """
    first = data[: data.find(b"\n") + 1] or data
    at = kept.find(first, max(0, len(kept) - len(data)))
    compared, apart = 0, 0
    while at >= 0 and compared < _MOST_COMPARED:
        size = len(kept) - at
        # A log that repeats one line has very many places. Almost all of them differ at the end of
        # the kept log, or where the place before did.
        last = max(0, size - _PIECE)
        if _same(data, kept, at, last) and (apart >= size or _same(data, kept, at, apart)):
            compared += 1
            places = range(0, size, _PIECE)
            found = next((one for one in places if not _same(data, kept, at, one)), None)
            if found is None:
                return at
            apart = found
        at = kept.find(first, at + 1)
    return len(kept)


def _same(data: bytes, kept: bytes, at: int, start: int) -> bool:
    """Compare a piece of the node's log with the kept one, as if it began at a place there."""
    end = min(start + _PIECE, len(kept) - at)
    return data[start:end] == kept[at + start : at + end]


def with_beginning(data: bytes, kept: Path) -> bytes:
    """Return a log with the lines that the node has dropped, if its place in the saved log is sure.

    Args:
        data: The log from the cluster.
        kept: The log that a follower saved on this machine.
    """
    if data and (begin := saved_log.beginning(kept, data, whole=True)):
        with log.ignored(_log, "reading a saved log", OSError), kept.open("rb") as file:
            return file.read(begin) + data
    return data


async def begun(pieces: AsyncGenerator[bytes, None], kept: Path) -> AsyncGenerator[bytes, None]:
    """Yield what :func:`with_beginning` returns, in pieces.

    Args:
        pieces: The log from the cluster. They are closed.
        kept: The log that a follower saved on this machine.
    """
    async with aclosing(pieces):
        first = bytearray()
        async for piece in pieces:
            first += piece
            if len(first) >= saved_log.ENOUGH:
                break
        if first:
            head = bytes(first)
            end = await asyncio.to_thread(saved_log.beginning, kept, head, whole=True)
            with log.ignored(_log, "reading a saved log", OSError):
                async with aclosing(read(kept, end)) as saved:
                    async for piece in saved:
                        yield piece
            yield head
        async for piece in pieces:
            yield piece


async def read(kept: Path, end: int | None = None) -> AsyncGenerator[bytes, None]:
    """Yield the first bytes of a kept log, or all of it, in pieces that end anywhere.

    Args:
        kept: The log.
        end: Number of bytes; None means all that it has now.

    Raises:
        OSError: It cannot be read.
    """
    if end == 0:
        return
    with kept.open("rb") as file:
        size = kept.stat().st_size if end is None else end
        async with aclosing(file_pieces.read(file.fileno(), 0, size)) as pieces:
            async for piece in pieces:
                yield piece
