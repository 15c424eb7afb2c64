"""Reads the files of ``%output`` out of a container's log (``by:log``).

A container beside the program has written what :mod:`.replica_files` would send over a connection,
as lines of base64 (:class:`.replica_files.LogWriter`). The last line has the number of bytes and
their SHA-256, so it is noticed if the node has dropped lines.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable

from ciao_kernel.delivery.replica_files import LOG_END, LOG_LINE, LOG_LONGEST, LOG_MOST
from ciao_kernel.delivery.transfers import final
from ciao_kernel.errors import BackendError
from ciao_kernel.visible_text import short, visible

_MOST = 2 * LOG_MOST
"""Bytes with all that is said about the files; a pod's bytes are foreign input."""
_WORDS = 200


class LogReader:
    """Takes the lines of one log."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._other = ""
        self.whole = False
        """Whether the last line has come, and all before it."""

    @property
    def data(self) -> bytes:
        """Return what was written."""
        return bytes(self._data)

    def take(self, lines: bytes) -> None:
        """Take some whole lines.

        Raises:
            BackendError: They are not what the container has written.
        """
        for line in lines.split(b"\n"):
            if self.whole:
                return
            if line.startswith(LOG_LINE):
                self._bytes(line[len(LOG_LINE) :])
            elif line.startswith(LOG_END):
                self._end(line[len(LOG_END) :])
            elif line.strip():
                self._other = visible(short(line.decode(errors="replace").strip(), _WORDS))

    def fault(self) -> str:
        """Return why the log, which has ended, is not whole; without a full stop."""
        if self._data:
            return "their log has only a part of them"
        return self._other.rstrip(".") or "it was stopped before its program had ended"

    def pass_on(self, out: Callable[[bytes], object], gap: str = "") -> None:
        """Pass on what was written, when the log has ended.

        Args:
            out: Takes it.
            gap: What is known of lines that are missing, to end a sentence.

        Raises:
            BackendError: It is not whole, or not what was asked for.
        """
        if not self.whole:
            raise BackendError(f"{self.fault()}{gap}.")
        final(out)(self.data)

    def _bytes(self, text: bytes) -> None:
        if len(text) > LOG_LONGEST or len(self._data) > _MOST:
            raise BackendError("their log has more than it may have.")
        try:
            self._data += base64.b64decode(text, validate=True)
        except ValueError:
            raise BackendError("a line of their log is damaged.") from None

    def _end(self, text: bytes) -> None:
        known = f"{len(self._data)} {hashlib.sha256(self._data).hexdigest()}"
        if text.decode(errors="replace").strip() != known:
            raise BackendError(
                "their log has lost lines.",
                "Does its node keep less than 10 MiB of a log (containerLogMaxSize)?",
            )
        self.whole = True
