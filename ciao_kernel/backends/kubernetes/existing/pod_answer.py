"""Keeps what a short program in a pod prints. It is foreign input, so it has a limit."""

from __future__ import annotations

from ciao_kernel.errors import BackendError
from ciao_kernel.visible_text import short

MOST = 4 << 20
"""Bytes of an answer."""
_MOST_ERRORS = 1 << 16
"""Bytes of standard error that are kept, from its end."""


class PodAnswer:
    """The answer of one program.

    Args:
        most: Bytes of standard output that are accepted.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._out, self._err = bytearray(), bytearray()

    @property
    def text(self) -> bytes:
        """The standard output so far."""
        return bytes(self._out)

    def out(self, data: bytes) -> None:
        """Add standard output.

        Raises:
            BackendError: It is too much; raised by a stream, it ends the connection.
        """
        if len(self._out) + len(data) > self._most:
            raise BackendError(f"its answer has more than {self._most // 1024:,} KiB.")
        self._out += data

    def err(self, data: bytes) -> None:
        """Add standard error; only its end is kept."""
        self._err += data
        del self._err[:-_MOST_ERRORS]

    def last_error(self) -> str:
        """Return the last line of standard error."""
        return short(self._err.decode("utf-8", "replace").strip().rpartition("\n")[2])
