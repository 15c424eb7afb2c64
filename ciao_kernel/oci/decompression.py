"""Decompress a layer while it is downloaded."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

_PIECE = 1 << 20


class Decompressor:
    """Tar of a layer, gzipped or not; decompressed in pieces of limited size.

    Raises:
        ValueError: The compression is not supported here.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._packed = next(pieces, b"")
        self._rest = b""
        if self._packed[:4] == b"\x28\xb5\x2f\xfd":
            raise ValueError("it is compressed with zstd")
        self._zip = zlib.decompressobj(31) if self._packed[:2] == b"\x1f\x8b" else None

    def _more(self) -> bytes:
        """Return the next bytes of the tar; b"" at its end."""
        while True:
            if self._zip is None:
                found, self._packed = self._packed, b""
            else:
                found = self._zip.decompress(self._packed, _PIECE)
                self._packed = self._zip.unconsumed_tail
                if self._zip.eof:  # there may be several gzip members in a row
                    self._packed = self._zip.unused_data
                    self._zip = zlib.decompressobj(31)
            if found:
                return found
            self._packed = self._packed or next(self._pieces, b"")
            if not self._packed:
                return b""

    def read(self, size: int) -> bytes:
        """Return the next bytes; fewer at the end."""
        while len(self._rest) < size and (data := self._more()):
            self._rest += data
        found, self._rest = self._rest[:size], self._rest[size:]
        return found
