"""A blob on its way from one registry to another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ciao_kernel.errors import RegistryFault

if TYPE_CHECKING:
    import requests

_PARTIAL = 206
"""Status of an answer with the requested part of a blob."""
_LEAST, _MOST = 16 << 10, 1 << 20
"""Smallest and largest piece of a copied blob, in bytes."""
_QUICK, _SLOW = 0.05, 0.2
"""Seconds for a piece: after a quicker one the next is larger, after a slower one smaller."""


class BlobStream:
    """A blob that is copied from one registry to another, piece by piece.

    Args:
        answer: The streamed answer with the blob.
        size: Expected number of bytes.
        name: Name of the image, for messages.
        start: Number of bytes at the beginning to leave out; a server may send them anyway.

    Raises:
        RegistryFault: During reading: the blob is too short or too long.
    """

    def __init__(self, answer: requests.Response, size: int, name: str, start: int = 0) -> None:
        self._answer, self._size, self._name, self._start = answer, size, name, start
        self.on_progress: Callable[[int], None] = lambda done: None
        """Called with the number of bytes after each piece; its exceptions end the upload."""

    def __len__(self) -> int:
        """Return the size, which requests uses as Content-Length."""
        return self._size - self._start

    def __iter__(self) -> Iterator[bytes]:
        import urllib3

        done = self._start if self._answer.status_code == _PARTIAL else 0
        size, began = _LEAST, time.monotonic()
        try:
            while piece := self._answer.raw.read(size, decode_content=False):
                done += len(piece)
                if done > self._size:
                    break
                if done > self._start:
                    yield piece[max(0, self._start - (done - len(piece))) :]
                self.on_progress(done)
                # Interrupts take effect between two pieces, so pieces are small on slow lines.
                now = time.monotonic()
                if now - began < _QUICK:
                    size = min(2 * size, _MOST)
                elif now - began > _SLOW:
                    size = max(size // 2, _LEAST)
                began = now
        except (urllib3.exceptions.HTTPError, OSError):
            # Otherwise it would look like a fault of the target registry.
            raise RegistryFault(
                f"the download of a layer of {self._name} broke off.",
                "Is its registry up?",
                passing=True,
            ) from None
        if done != self._size:
            raise RegistryFault(
                f"a layer of {self._name} does not have the {self._size} bytes of its manifest.",
                "The image is damaged: push it again.",
            )

    def close(self) -> None:
        """Close the connection, unless everything was read."""
        self._answer.close()
