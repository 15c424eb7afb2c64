"""An API server, asked over connections that stay open. Standard library only."""

from __future__ import annotations

import base64
import json
import select
import ssl
import tempfile
import time
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPMessage, HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.cluster.errors import ClusterError
from tests.cluster.kinds import Kinds, discovered

# Connecting is what a server that stands still does not answer; kubectl waits as long for it.
_CONNECT = 10
_ANSWER = 60
_TRIES = 10
_DISCOVERY = ", ".join(
    f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
    for version in ("v2", "v2beta1")
)


class Refused(ClusterError):
    """The server's no.

    Args:
        asked: method and address.
        code: of the answer.
        content: of the answer, a Status or a plain text.
        sent_twice: the first connection was lost, so the request may have been done before.
    """

    def __init__(self, asked: str, code: int, content: bytes, *, sent_twice: bool = False) -> None:
        self.reason, words = _words(code, content)
        self.sent_twice = sent_twice
        super().__init__(f"{asked}: {words}")


def _words(code: int, content: bytes) -> tuple[str, str]:
    """Return the reason and the sentence that kubectl would print."""
    text = content.decode(errors="replace").strip()
    try:
        status = json.loads(text)
        reason, message = status.get("reason", ""), status["message"]
    except (ValueError, KeyError, TypeError, AttributeError):
        reason, message = "", f"HTTP {code}: {text[:1000]}"
    return reason, f"Error from server{f' ({reason})' if reason else ''}: {message}"


@dataclass(frozen=True)
class Access:
    """Where a server is and who asks it.

    Args:
        server: its address.
        authority: who signs its certificate.
        certificate: of who asks, with the key; "" if a token is given.
        token: of who asks.
    """

    server: str
    authority: str
    certificate: str = field(default="", repr=False)
    token: str = field(default="", repr=False)


def access(kubeconfig: str) -> Access | None:
    """Return what a kubeconfig says, or None if it has what only kubectl goes by.

    That is YAML, plug-ins, files beside it, proxies, and what else is not written by
    certificates.py or users.py.
    """
    try:
        content = json.loads(kubeconfig)
        context = _named(content, "contexts", "context", content["current-context"])
        cluster = _named(content, "clusters", "cluster", context["cluster"])
        user = _named(content, "users", "user", context["user"])
        if set(cluster) != {"server", "certificate-authority-data"}:
            return None
        if not cluster["server"].startswith("https://"):
            return None
        authority = _decoded(cluster["certificate-authority-data"])
        if set(user) == {"token"}:
            return Access(cluster["server"], authority, token=user["token"])
        if set(user) == {"client-certificate-data", "client-key-data"}:
            both = (user["client-certificate-data"], user["client-key-data"])
            return Access(cluster["server"], authority, "\n".join(map(_decoded, both)))
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration):
        pass
    return None


def _named(content: dict[str, Any], entries: str, entry: str, name: str) -> Any:
    return next(one[entry] for one in content[entries] if one["name"] == name)


def _decoded(data: str) -> str:
    return base64.b64decode(data).decode()


class Server:
    """An API server. Threads may share it, processes may not.

    Args:
        access: where it is and who asks.
    """

    def __init__(self, access: Access) -> None:
        address = urlsplit(access.server)
        self._host, self._port = address.hostname or "", address.port or 443
        self._root = address.path.rstrip("/")
        self._headers = {"User-Agent": "ciao-tests"}
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.load_verify_locations(cadata=access.authority)
        if access.token:
            self._headers["Authorization"] = f"Bearer {access.token}"
        else:
            # OpenSSL takes it from a file alone. It is there for this moment, for us only.
            with tempfile.NamedTemporaryFile("w") as file:
                file.write(access.certificate)
                file.flush()
                self._context.load_cert_chain(file.name)
        self._idle: list[HTTPSConnection] = []  # a list's append and pop need no lock
        self._kinds: Kinds | None = None

    def kinds(self, *, fresh: bool = False) -> Kinds:
        """Return the server's kinds as they were when it was first asked, or as they are now."""
        if self._kinds is None or fresh:
            answers = [self.ask("GET", path, accept=_DISCOVERY) for path in ("/api", "/apis")]
            self._kinds = discovered(*(json.loads(answer) for answer in answers))
        return self._kinds

    def ask(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        seconds: float = _ANSWER,
        repeatable: bool = True,
    ) -> bytes:
        """Ask for something and return the content of the answer.

        Args:
            method: of HTTP.
            path: below the server's address.
            query: further words of the address.
            body: what is sent, as values.
            content_type: of the body.
            accept: which content is wanted.
            seconds: how long the server may be silent.
            repeatable: whether it may be sent again over a new connection, when the server has
                closed one that stayed open.

        Raises:
            Refused: with the server's words.
            ClusterError: it does not answer.
        """
        target = f"{self._root}{path}{f'?{urlencode(query)}' if query else ''}"
        headers = {**self._headers, "Accept": accept}
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = content_type
        sent_twice = False
        for tries in range(_TRIES):
            code, answer, said, again = self._exchange(
                method, target, content, headers, seconds, repeatable
            )
            sent_twice = sent_twice or again
            # What is refused with this header was not done, as when the server is starting.
            wait = answer.get("Retry-After", "")
            if (code != 429 and code < 500) or not wait.isdigit() or tries == _TRIES - 1:
                break
            time.sleep(int(wait))
        if code >= 400:
            raise Refused(f"{method} {target}", code, said, sent_twice=sent_twice)
        return said

    def _exchange(
        self,
        method: str,
        target: str,
        content: bytes | None,
        headers: dict[str, str],
        seconds: float,
        repeatable: bool,
    ) -> tuple[int, HTTPMessage, bytes, bool]:
        """Send a request, on a new connection if the server has closed the old one meanwhile.

        Returns:
            Status, headers, content, and whether the request was sent twice.
        """
        sent_twice = False
        while True:
            connection = self._open()
            used = connection is not None
            begun = False
            try:
                if connection is None:
                    connection = HTTPSConnection(
                        self._host, self._port, timeout=_CONNECT, context=self._context
                    )
                    connection.connect()
                connection.sock.settimeout(seconds)
                connection.request(method, target, content, headers)
                answer = connection.getresponse()
                begun = True
                said = answer.read()
            except (OSError, HTTPException) as error:
                if connection is not None:
                    connection.close()
                if used and not begun and repeatable and _closed(error):
                    sent_twice = True
                    continue
                raise ClusterError(
                    f"{method} {target}: the API server at {self._host}:{self._port} does not "
                    f"answer: {type(error).__name__}: {error}"
                ) from error
            if connection.sock is not None:  # else the server asked for its end
                self._idle.append(connection)
            return answer.status, answer.headers, said, sent_twice

    def _open(self) -> HTTPSConnection | None:
        """Return a connection that stayed open, or None if there is none."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                return None
            ready = select.poll()
            ready.register(connection.sock, select.POLLIN)
            if not ready.poll(0):
                return connection
            connection.close()  # nothing was asked, so what it says is that it ended
        return None


def _closed(error: Exception) -> bool:
    """Tell whether an error means that the other side had closed the connection."""
    return isinstance(error, (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError))
