"""The first pieces of a log as one: many lines tell the place of a stream in a saved log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from ciao_kernel.kube.resume_position import Gap, Lines

_SILENCE = 0.2
"""Seconds without a piece after which there are no more for now."""


async def together(
    pieces: AsyncGenerator[Lines | Gap, None], size: int
) -> AsyncGenerator[Lines | Gap, None]:
    """Yield the pieces of a log, the first ones joined to one.

    Args:
        pieces: The pieces; the caller closes them, after this generator, which may wait for one.
        size: Bytes that are enough for the first one.

    Raises:
        Refused: From the reader of the log.
    """
    first: list[Lines] = []
    coming: asyncio.Task[Lines | Gap] | None = None
    try:
        while sum(len(one.data) for one in first) < size:
            coming = asyncio.ensure_future(anext(pieces))
            # The first one may take as long as it likes.
            await asyncio.wait({coming}, timeout=_SILENCE if first else None)
            if not coming.done() or coming.exception() or isinstance(coming.result(), Gap):
                break
            piece, coming = coming.result(), None
            assert isinstance(piece, Lines)
            first.append(piece)
        if first:
            yield _joined(first)
        if coming is not None:
            piece, coming = await coming, None
            yield piece
    except StopAsyncIteration:
        return
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
    async for piece in pieces:
        yield piece


def _joined(pieces: list[Lines]) -> Lines:
    data = b"".join(one.data for one in pieces)
    return Lines(data, sum(one.count for one in pieces), pieces[-1].newest)
