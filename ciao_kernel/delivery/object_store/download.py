"""Reads an object of a bucket; a connection that is cut goes on where it was."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ciao_kernel.delivery.object_store.bucket import Bucket
from ciao_kernel.delivery.transfers import final
from ciao_kernel.errors import BackendError

if TYPE_CHECKING:
    import aiohttp

_log = logging.getLogger(__name__)

_VALID = 600
"""Seconds for which an address is valid; each try has a new one."""
_TRIES = 6
"""Tries in a row that may bring nothing."""
_PIECE = 1 << 18
_PAUSE = 0.5


async def read(store: Bucket, name: str, limit: int, out: Callable[[bytes], object]) -> None:
    """Read an object to its end.

    Args:
        store: The bucket.
        name: Name of the object.
        limit: Largest number of bytes; whoever wrote the object may have written anything.
        out: Receives the bytes.

    Raises:
        BackendError: There is no such object, or it cannot be read; or from ``out``.
    """
    import aiohttp

    taken = _Taken(limit, out)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)
    pause, fault, failed = _PAUSE, "", 0
    async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
        while failed < _TRIES:
            before = taken.size
            fault = await _once(session, store.signed("GET", name, _VALID), taken)
            if not fault:
                return
            _log.info("reading from a bucket failed: %s", fault)
            failed = 0 if taken.size > before else failed + 1
            pause = pause * 2 if failed else _PAUSE
            await asyncio.sleep(pause)
    raise BackendError(f"{store.server} does not answer: {fault}.")


class _Taken:
    """What has come so far."""

    def __init__(self, limit: int, out: Callable[[bytes], object]) -> None:
        self._limit, self._out = limit, final(out)
        self.size = 0
        self.etag = ""
        """Names the content of the object whose first bytes have come."""

    def take(self, data: bytes) -> None:
        self.size += len(data)
        if self.size > self._limit:
            raise BackendError("the object has more than it may have.")
        self._out(data)


async def _once(session: aiohttp.ClientSession, address: str, taken: _Taken) -> str:
    """Read from where the last try has ended; return why the object is not whole."""
    import aiohttp
    from yarl import URL

    headers = {"Range": f"bytes={taken.size}-"} if taken.size else {}
    if taken.size and taken.etag.startswith('"'):  # a weak one matches nothing
        headers["If-Match"] = taken.etag
    ask = session.get(URL(address, encoded=True), headers=headers, allow_redirects=False)
    try:
        async with ask as answer:
            if answer.status == 404:
                raise BackendError("it was stopped before its program had ended.")
            if answer.status == 412:
                raise BackendError("the object was written again while it was read.")
            if answer.status >= 500:
                return f"HTTP {answer.status}"
            if answer.status != (206 if taken.size else 200):
                raise BackendError(f"the bucket does not give the files: HTTP {answer.status}.")
            if not taken.size:
                taken.etag = answer.headers.get("ETag", "")
            async for data in answer.content.iter_chunked(_PIECE):
                taken.take(data)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return type(error).__name__  # its own text may have the address
    return ""
