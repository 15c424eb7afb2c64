"""Writes files of a replica as lines of a log: :mod:`ciao_kernel.delivery.output.log_lines`."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable

from ciao_kernel.delivery.replica_files.messages import write_out
from ciao_kernel.delivery.replica_files.sender import Sender

LOG_LINE, LOG_END = b"ciao-output ", b"ciao-output-end "
"""Beginnings of the lines that carry files through a log, and of the last of them."""
LOG_LONGEST = 12_000
"""Characters of base64 in such a line; container runtimes split lines of 16 KiB."""
LOG_MOST = 4 << 20
"""Bytes that a log carries: as lines they stay below 10 MiB, of which a node keeps the newest."""


class LogWriter:
    """Writes bytes to standard output as lines of a log; :mod:`.log_lines` reads them.

    Args:
        put: Takes each line, with its line feed; by default it goes to standard output.
    """

    def __init__(self, put: Callable[[bytes], object] | None = None) -> None:
        self._put = put or write_out
        self._waiting = bytearray()
        self._digest = hashlib.sha256()
        self._size = 0

    def write(self, data: bytes) -> None:
        """Take bytes, and write the lines that are full."""
        self._size += len(data)
        self._digest.update(data)
        self._waiting += data
        most = LOG_LONGEST // 4 * 3
        while len(self._waiting) >= most:
            self._line(bytes(self._waiting[:most]))
            del self._waiting[:most]

    def end(self) -> None:
        """Write the rest, and the last line."""
        if self._waiting:
            self._line(bytes(self._waiting))
        self._put(LOG_END + f"{self._size} {self._digest.hexdigest()}\n".encode())

    def _line(self, data: bytes) -> None:
        self._put(LOG_LINE + base64.b64encode(data) + b"\n")


def write_to_log(
    words: list[str], limit: int, put: Callable[[bytes], object] | None = None
) -> None:
    """Write files into the log of this container, if they are not too large for it.

    Args:
        words: Their paths.
        limit: Largest number of bytes.
        put: Takes each line; by default it goes to standard output.
    """
    writer = LogWriter(put)
    request = {"base": ".", "words": words, "limit": limit, "after": "", "offset": 0}
    Sender(writer.write).send({**request, "waits": False, "waits_only": False, "in_log": True})
    writer.end()
