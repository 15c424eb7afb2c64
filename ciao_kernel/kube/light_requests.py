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
        """Return whether a server can be reached this way: directly, and without a login."""
        return not access.server.proxy() and "@" not in urlsplit(access.server.address).netloc

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
        target = quote(parts.path + path) + (f"?{urlencode(query)}" if query else "")
        headers = [
            *self.access.identity.headers(),
            ("Accept", "application/json"),
            ("User-Agent", "ciao-kernel"),
        ]
        async with self._turns, asyncio.timeout(answer):
            connection = self._rested()
            if connection is None:
                async with asyncio.timeout(connect):
                    opened = await _open(parts.scheme, parts.hostname, parts.port)
                connection = _Connection(
                    opened, parts.netloc, self._trust if parts.scheme == "https" else None,
                    self.access.server.name or parts.hostname or "", answer,
                )  # fmt: skip
            exchange = functools.partial(connection.exchange, target, headers, path)
            try:
                found = await in_thread(exchange)
            except BaseException:
                connection.abort()
                raise
            if connection.sock is not None:
                self._idle.append((time.monotonic(), connection))
            if self._closed:
                self.close()
            return found

    def close(self) -> None:
        """Close the connections; those with a request are closed when it ends."""
        self._closed = True
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


async def _open(scheme: str, host: str | None, port: int | None) -> socket.socket:
    """Open a connection to the first address of a host that answers."""
    if scheme not in ("http", "https") or not host:
        raise ValueError("the address is none of HTTP")
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        host, port or (443 if scheme == "https" else 80), type=socket.SOCK_STREAM
    )
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

    def exchange(self, target: str, headers: list[tuple[str, str]], path: str) -> Answer:
        """Send a GET and read its answer, in a thread; after an error the connection is closed."""
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

    def _shake_hands(self) -> None:
        if self._trust is None or self.sock is None or isinstance(self.sock, ssl.SSLSocket):
            return
        secure = self._trust.wrap_socket(
            self.sock, server_hostname=self._name, do_handshake_on_connect=False
        )
        self.sock = secure  # from now on it can be shut down
        secure.do_handshake()

    def abort(self) -> None:
        """End the exchange of another thread, which then closes the connection."""
        if (sock := self.sock) is not None:
            with contextlib.suppress(OSError):
                # Not SSLSocket.shutdown, which would change an object that the thread uses.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
