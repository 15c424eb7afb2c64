"""A log in pieces, for a reader that does not hold all of it. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from ciao_kernel.model.queries import count_lines, last_lines


async def whole_lines(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield a log in pieces of whole lines; its final line may lack a line feed.

    Args:
        pieces: The log in pieces that end anywhere. They are closed.
    """
    rest = bytearray()  # a line may have come in thousands of pieces
    async with aclosing(pieces):
        async for piece in pieces:
            cut = piece.rfind(b"\n") + 1
            if cut:
                yield bytes(rest + piece[:cut]) if rest else piece[:cut]
                rest.clear()
            rest += piece[cut:]
    if rest:
        yield bytes(rest)


async def last(pieces: AsyncIterator[bytes], number: int) -> bytes:
    """Return the last lines of a log, without holding many of those before them.

    Args:
        pieces: The log in pieces of whole lines.
        number: Number of lines.
    """
    held, count = deque[tuple[bytes, int]](), 0
    async for piece in pieces:
        lines = count_lines(piece)
        held.append((piece, lines))
        count += lines
        while held and count - held[0][1] >= number:
            count -= held.popleft()[1]
    return last_lines(b"".join(piece for piece, _ in held), number)
