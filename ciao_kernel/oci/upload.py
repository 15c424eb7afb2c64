"""One blob on its way into a registry; after a cut, the upload goes on where it was.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pushing-blobs

Not every registry can do that. For example, Docker's own registry drops an upload whose last
request was cut. The fault of the cut is then raised, and the caller uploads the blob again.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING
from urllib.parse import urlencode

from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci.auth import Scopes
from ciao_kernel.oci.registry import Registry
from ciao_kernel.oci.registry_errors import Answer

if TYPE_CHECKING:
    from ciao_kernel.oci.blob_stream import BlobStream

_log = logging.getLogger(__name__)

Content = Callable[[int], "bytes | IO[bytes] | BlobStream"]
"""Returns the bytes of a blob from an offset on; whoever calls it closes the result."""

_BYTES = "application/octet-stream"
_SMALL = 1 << 20
"""Size in bytes up to which a blob is rather sent again."""
_WAITS = (0.5, 1.0, 2.0)
"""Seconds before each try; as many tries without any progress are allowed one after the other."""
_TRIES = 200
_NOT_RESUMABLE = frozenset({400, 403, 404, 405, 416, 501})
"""Status codes of a registry that does not know the upload any more, or that cannot resume it."""
_RANGE = re.compile(r"(?:bytes[= ])?0-(\d{1,15})")


class Upload:
    """One blob.

    Args:
        registry: Receives the blob.
        scopes: Scopes of all requests.
        what: The action, for messages: "push to host/team/model".
        digest: Digest of the blob; the registry compares it with what it got.
        content: Returns the bytes from an offset on.
        size: Size of the blob in bytes.
    """

    def __init__(
        self,
        registry: Registry,
        scopes: Scopes,
        what: str,
        digest: str,
        content: Content,
        size: int,
    ) -> None:
        self._registry, self._scopes, self._what = registry, scopes, what
        self._digest, self._content, self._size = digest, content, size

    def send(self, place: str) -> None:
        """Send the blob to the address of an open upload.

        Raises:
            RegistryFault: The registry refuses. Or the upload was cut and cannot go on; the fault
                is then a passing one, and a new upload may succeed.
        """
        try:
            self._send("PUT", self._closing(place), 0, (201, 204))
        except RegistryFault as fault:
            if not fault.passing or self._size <= _SMALL:
                raise
            self._resume(place, fault)

    def _resume(self, place: str, fault: RegistryFault) -> None:
        """Continue a cut upload until it is complete.

        Raises:
            RegistryFault: See :meth:`send`.
        """
        reached = idle = 0
        for _ in range(_TRIES):
            time.sleep(_WAITS[idle])
            idle += 1
            try:
                place, start = self._state(place)
                if not start:
                    raise fault
                if start > reached:
                    reached, idle = start, 0
                if start < self._size:
                    _log.info("an upload goes on at byte %d of %d", start, self._size)
                    headers = {"Content-Range": f"{start}-{self._size - 1}"}
                    answer = self._send("PATCH", place, start, (202,), headers)
                    place = self._registry.where(answer) or place
                self._send("PUT", self._closing(place), self._size, (201, 204))
                return
            except RegistryFault as error:
                if error is fault or error.code in _NOT_RESUMABLE:
                    _log.info("an upload starts again: %s", error)
                    raise fault from None
                if not error.passing or idle == len(_WAITS):
                    raise
        raise fault

    def _state(self, place: str) -> tuple[str, int]:
        """Return where the upload goes on: its address, and the number of received bytes.

        The number is 0 if it is unknown: some registries write ``0-0`` for no bytes and for one.
        """
        answer = self._registry.call(
            "GET", place, self._scopes, accept=(200, 202, 204), what=self._what
        )
        found = _RANGE.fullmatch(answer.headers.get("Range", "").strip())
        end = int(found[1]) if found else 0
        received = end + 1 if 0 < end < self._size else 0
        return self._registry.where(answer) or place, received

    def _send(
        self,
        method: str,
        place: str,
        start: int,
        accept: tuple[int, ...],
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send the bytes from an offset on; none if it is the blob's end."""
        left = self._size - start
        body = self._content(start) if left else b""
        with contextlib.nullcontext() if isinstance(body, bytes) else contextlib.closing(body):
            return self._registry.call(
                method,
                place,
                self._scopes,
                accept=accept,
                headers={"Content-Type": _BYTES, "Content-Length": str(left), **(headers or {})},
                data=body,
                size=left,
                what=self._what,
            )

    def _closing(self, place: str) -> str:
        """Return the address that completes the upload."""
        joint = "&" if "?" in place else "?"
        return f"{place}{joint}{urlencode({'digest': self._digest})}"
