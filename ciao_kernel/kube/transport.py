"""One request to the API server and its answer, without retries.

Each answer is logged with its time, and its ``Date`` sets the server's clock.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from ciao_kernel.kube import connection_faults, responses
from ciao_kernel.kube.connections import Connections
from ciao_kernel.kube.object_shape import Object
from ciao_kernel.kube.responses import Answer
from ciao_kernel.kube.server_clock import ServerClock

if TYPE_CHECKING:
    import aiohttp

_log = logging.getLogger(__name__)

CONNECT = 5.0
"""Seconds for a connection."""
ANSWER = 30.0
"""Seconds for a whole answer; of a stream, seconds without a byte."""


class Transport:
    """Sends requests of a client over its connections.

    Args:
        connections: The pool, and the current credentials.
        clock: Takes the time of each answer.
    """

    def __init__(self, connections: Connections, clock: ServerClock) -> None:
        self._connections, self._clock = connections, clock

    async def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Object | None, kind: str
    ) -> Answer:
        """Send one request and read its answer to the end; the errors of :meth:`stream`."""
        light = await self._connections.light() if method == "GET" else None
        if light is not None:
            with self._noted(method, path, query) as note:
                found = await light.get(path, query, CONNECT, ANSWER)
                note(found.status, found.headers)
            return found
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=ANSWER, sock_connect=CONNECT)
        async with self.stream(method, path, query, body, kind, timeout) as answer:
            return Answer(answer.status, answer.headers, await responses.body(answer))

    @contextlib.asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Object | None,
        kind: str,
        timeout: aiohttp.ClientTimeout | None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send one request and provide the answer as a stream: for watches and logs.

        Args:
            method: ``GET``, ``POST`` and so on.
            path: Path of the request.
            query: Its query.
            body: Sent as JSON; None sends none.
            kind: Content type of the body.
            timeout: None is that of the pool.

        Raises:
            aiohttp.ClientError, TimeoutError, OSError: The connection failed.
            ClusterFault: The certificates or an address cannot be used.
        """
        pool = await self._connections.pool()
        access = self._connections.access
        headers = access.headers()
        headers["Accept"] = "application/json"
        if body is not None:
            headers["Content-Type"] = kind
        exchange = pool.request(
            method,
            access.server.address + path,
            params=query,
            data=None if body is None else json.dumps(body),
            headers=headers,
            timeout=timeout,
            allow_redirects=False,  # only a proxy with a login page redirects, no API server does
            **access.options(),
        )
        async with contextlib.AsyncExitStack() as stack:
            with self._noted(method, path, query) as note:
                try:
                    answer = await stack.enter_async_context(exchange)
                except ValueError as error:
                    if isinstance(error, OSError):  # one of a certificate
                        raise
                    # It may quote a password.
                    raise connection_faults.away(error, access)[0] from None
                note(answer.status, answer.headers)
            yield answer

    @contextlib.contextmanager
    def _noted(
        self, method: str, path: str, query: Mapping[str, str]
    ) -> Iterator[Callable[[int, Mapping[str, str]], None]]:
        """Log a request with its time, and take the server's clock from the answer's headers."""
        began, sent = time.monotonic(), time.time()
        shown = f"{path}?{urlencode(query)}" if query else path

        def note(status: int, headers: Mapping[str, str]) -> None:
            seconds = time.monotonic() - began
            _log.debug("%s %s: %d in %.3f s", method, shown, status, seconds)
            self._clock.note(headers.get("Date", ""), sent)

        try:
            yield note
        except Exception as error:
            seconds = time.monotonic() - began
            _log.debug("%s %s failed after %.3f s: %r", method, shown, seconds, error)
            raise
