"""The messages between a replica and this machine, over standard input and output.

A message is a byte that names its kind, the length of its body in four bytes, and the body.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from typing import BinaryIO

LIST, FILE, DATA, END, DONE, BEAT = b"L", b"F", b"D", b"E", b"Z", b"B"
"""Kinds of messages: what there is, the next file, a piece of it, its digest, the last message, and
a sign of life."""
FAULT, CHANGED = b"X", b"C"
"""Kinds of messages: a file that does not come, and why; the file before was written meanwhile."""
POD = b"P"
"""Kind of the first message of what is read later: the uid of the pod that wrote it."""
HEADER = struct.Struct(">cI")
RELEASE = b"release\n"
PIECE = 1 << 18
"""Bytes that are read and sent at once."""


def pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield so many bytes of a file, or fewer if it ends."""
    while size > 0:
        data = file.read(min(PIECE, size))
        if not data:
            return
        size -= len(data)
        yield data


def write_out(data: bytes) -> None:
    """Write bytes to standard output."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def read_in(size: int) -> bytes:
    """Read so many bytes from standard input; end if the other side is gone."""
    data = b""
    while len(data) < size:
        piece = os.read(0, min(PIECE, size - len(data)))
        if not piece:
            sys.exit(5)  # the other side is gone: what has come is removed
        data += piece
    return data
