"""Unpacks tables of pods, which travel as plain Parquet files that are packed as a whole.

Parquet's own compression is refused in what a pod sends (:mod:`.parquet_check`). A packed file has
one size, which is counted while it is unpacked. The file is unpacked when it arrives: users may
open it.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ciao_kernel.delivery.input.value_formats import most_unpacked
from ciao_kernel.delivery.transfers import size_text

_FIRST = b"x"
"""First byte of a packed file; plain Parquet begins with ``PAR1``."""
_BLOCK = 1 << 20


def is_table(file: str) -> bool:
    """Return whether a file has a table that may be packed, by its name."""
    return file.endswith(".parquet")


def unpacked(data: bytes) -> bytes:
    """Return a table as plain Parquet.

    Args:
        data: The table, packed or not.

    Raises:
        ValueError: It is damaged, or much larger than what came.
    """
    packed = data.startswith(_FIRST)
    return b"".join(_pieces(io.BytesIO(data), len(data))) if packed else data


def unpack(path: Path) -> None:
    """Replace a file with its table as plain Parquet.

    Args:
        path: The table, packed or not.

    Raises:
        ValueError: It is damaged, or much larger than what came.
        OSError: The table cannot be written.
    """
    with path.open("rb") as stream:
        if stream.read(1) != _FIRST:
            return
        stream.seek(0)
        plain = path.with_name(f"{path.name}.plain")
        try:
            with plain.open("wb") as target:
                target.writelines(_pieces(stream, path.stat().st_size))
            plain.replace(path)
        finally:
            plain.unlink(missing_ok=True)


def _pieces(stream: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the parts of a packed table, none of which is large."""
    engine, total, most, rest = zlib.decompressobj(), 0, most_unpacked(size), b""
    while not engine.eof:
        data = rest or stream.read(_BLOCK)
        try:
            piece = engine.decompress(data, _BLOCK)
        except zlib.error:
            raise ValueError("the packed table is damaged") from None
        rest, total = engine.unconsumed_tail, total + len(piece)
        if total > most:
            raise ValueError(f"the table has more than {size_text(most)}, too many for its file")
        if not data and not piece:  # without new data the last piece may still come
            raise ValueError("the end of the packed table is missing")
        yield piece
