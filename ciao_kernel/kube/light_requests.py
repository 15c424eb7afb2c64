"""GETs by the standard library's ``http.client``, for commands that only read.

aiohttp takes longer to import than a list of jobs takes altogether. So a client's first GETs go
this way, over few connections, until something needs a stream and opens the pool of
:class:`~ciao_kernel.kube.connections.Connections`.

A connection is opened by the event loop; the handshake and the exchange are those of a thread. A
cancelled caller does not wait for it: the socket is shut down, which ends the thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, IncompleteRead
from urllib.parse import quote, urlencode, urlsplit

from aiohappyeyeballs import start_connection

from ciao_kernel.background import in_thread
from ciao_kernel.kube import responses
from ciao_kernel.kube.access import Access
from ciao_kernel.kube.responses import Answer

_MOST = 4
"""Connections: a handshake takes longer than a few short answers."""
_NEXT_ADDRESS = 0.25
"""Seconds after which the next address of a host is tried beside the first (RFC 8305)."""
_WRITTEN = "/%:@!$&'(*)+,;=~"
"""What stays as it is in the path of a server's address."""
_RESTS = 5.0
"""Seconds for which a connection without a request is kept; a server may close it later."""


class LightRequests:
    """A few connections to one API server, by one user's credentials.

    Args:
        access: Server and credentials.

    Raises:
        ClusterFault: The certificates cannot be used.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        self._trust = access.trust()
        self._turns = asyncio.Semaphore(_MOST)
        self._idle: list[tuple[float, _Connection]] = []
        self._closed = False

    @staticmethod
    def suits(access: Access) -> bool:
        """Return whether a server can be reached this way.

        Not by a proxy, with a login in the address, a zone of IPv6, or a dot at the host's end,
        which its certificate does not have: aiohttp knows all that.
        """
        parts = urlsplit(access.server.address)
        host = parts.hostname or ""
        plain = not host.endswith(".") and "%" not in host and "@" not in parts.netloc
        return plain and not access.server.proxy()

    async def get(
        self, path: str, query: Mapping[str, str], connect: float, answer: float
    ) -> Answer:
        """Send a GET and read its answer to the end; redirects are not followed.

        Args:
            path: Path of the request, below that of the server's address.
            query: Its parameters.
            connect: Seconds in which a connection must be open.
            answer: Seconds for everything.

        Raises:
            OSError, ValueError: There is no answer, or no request can be sent.
            ClusterFault: The answer is too large.
        """
        parts = urlsplit(self.access.server.address)
        query_text = f"?{urlencode(query)}" if query else ""
        target = quote(parts.path, safe=_WRITTEN) + quote(path) + query_text
        headers = [
            *self.access.identity.headers(),
            ("Accept", "application/json"),
            ("User-Agent", "ciao-kernel"),
        ]
        # The wait for a turn counts: a server that takes connections and says nothing is told soon.
        async with asyncio.timeout(answer), self._turns:
            rested = self._rested()
            if rested is not None:
                try:
                    return await self._exchange(rested, target, headers, path)
                except OSError as error:
                    if isinstance(error, TimeoutError):
                        raise
                    self._drop_idle()  # the server has closed it, and the others probably too
            opened = await _open(parts.scheme, parts.hostname, parts.port, connect)
            connection = _Connection(
                opened, parts.netloc, self._trust if parts.scheme == "https" else None,
                self.access.server.name or parts.hostname or "", answer,
            )  # fmt: skip
            return await self._exchange(connection, target, headers, path)

    async def _exchange(
        self, connection: _Connection, target: str, headers: list[tuple[str, str]], path: str
    ) -> Answer:
        exchange = functools.partial(connection.exchange, target, headers, path)
        try:
            found = await in_thread(exchange)
        except BaseException:
            connection.abort()
            raise
        if connection.sock is not None:
            self._idle.append((time.monotonic(), connection))
        if self._closed:
            self._drop_idle()
        return found

    def close(self) -> None:
        """Close the connections; those with a request are closed when it ends."""
        self._closed = True
        self._drop_idle()

    def _drop_idle(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()

    def _rested(self) -> _Connection | None:
        """Return an open connection without a request; None if there is none."""
        while self._idle:
            since, connection = self._idle.pop()
            if time.monotonic() - since < _RESTS:
                return connection
            connection.close()
        return None


async def _open(scheme: str, host: str | None, port: int | None, connect: float) -> socket.socket:
    """Open a connection to the first address of a host that answers.

    The limit is that of the connection alone: a name server may take longer.
    """
    if scheme not in ("http", "https") or not host:
        raise ValueError("the address is none of HTTP")
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        host, port or (443 if scheme == "https" else 80), type=socket.SOCK_STREAM
    )
    async with asyncio.timeout(connect):
        return await start_connection(found, happy_eyeballs_delay=_NEXT_ADDRESS)


class _Connection(HTTPConnection):
    """One connection, over a socket that is open.

    Args:
        opened: The socket; it belongs to this connection from now on.
        host: Host and port, for the header.
        trust: The TLS context; None for a connection without encryption.
        name: Name in the server's certificate.
        seconds: Seconds without a byte after which the connection counts as dead.
    """

    auto_open = 0

    def __init__(
        self,
        opened: socket.socket,
        host: str,
        trust: ssl.SSLContext | None,
        name: str,
        seconds: float,
    ) -> None:
        super().__init__("", 0)  # it is open already, and is never opened again
        self._trust, self._named, self._name = trust, host, name
        opened.settimeout(seconds)
        self.sock: socket.socket | None = opened
        self._socket = opened
        """http.client forgets its own while it reads an answer after which the server closes."""
        self._aborted, self._over = False, False

    def exchange(self, target: str, headers: list[tuple[str, str]], path: str) -> Answer:
        """Send a GET and read its answer, in a thread; after an error the connection is closed."""
        self._over = False
        try:
            self._shake_hands()
            self.putrequest("GET", target, skip_host=True, skip_accept_encoding=True)
            for name, value in (("Host", self._named), *headers, ("Accept-Encoding", "gzip")):
                self.putheader(name, value.encode())
            self.endheaders()
            with self.getresponse() as answer:
                found = {name.title(): value for name, value in answer.getheaders()}
                return Answer(answer.status, found, responses.read(answer, path))
        except BaseException as error:
            self.close()
            if isinstance(error, ValueError) and not isinstance(error, OSError):
                raise ValueError("a header cannot be sent") from None  # it may quote a token
            if not isinstance(error, HTTPException) or isinstance(error, OSError):
                raise
            cut = isinstance(error, IncompleteRead)
            raise ConnectionError(f"the answer is {'cut off' if cut else 'not HTTP'}") from None
        finally:
            self._over = True
            if self._aborted:
                self.close()

    def _shake_hands(self) -> None:
        if self._trust is None or self.sock is None or isinstance(self.sock, ssl.SSLSocket):
            return
        secure = self._trust.wrap_socket(
            self.sock, server_hostname=self._name, do_handshake_on_connect=False
        )
        self.sock = self._socket = secure  # from now on it can be shut down
        if self._aborted:
            raise ConnectionError("nobody waits for the answer any more")
        secure.do_handshake()

    def abort(self) -> None:
        """End the exchange of another thread, which then closes the connection."""
        self._aborted = True
        with contextlib.suppress(OSError):
            # Not SSLSocket.shutdown, which would change an object that the thread uses.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        if self._over:
            self.close()
