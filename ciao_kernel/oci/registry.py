"""Requests to one registry, with authentication, redirects and retries.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from ciao_kernel import log
from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci import connections
from ciao_kernel.oci.auth import Authorizer, Scopes
from ciao_kernel.oci.credentials import Credentials
from ciao_kernel.oci.registry_errors import (
    Answer,
    Requester,
    pause,
    refusal,
    unreachable,
    words,
)
from ciao_kernel.oci.request import Request

if TYPE_CHECKING:
    from requests import Response

_log = logging.getLogger(__name__)

_TIMEOUT = (5.0, 30.0)
"""Seconds to connect, and between two pieces of an answer."""
_UPLOADS = (30.0, 300.0)
"""The same for requests with a body. The first also limits how long the registry may stall the
upload; the second is long, since a registry assembles the blob before it answers."""
_LONGEST = 4 << 20
"""Largest answer, in bytes, that is not a layer: the limit of registries for a manifest."""
_SHORT = 64 << 10
_HOPS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Registry:
    """One registry; its connections and tokens are kept for the next cell.

    Args:
        host: Host and port for requests.
        credentials: Credentials of the user; None means anonymous.
        plain: The registry uses http; only if the user's settings name it.
        authority: File with the certificate of its authority, trusted in addition to the system's.
        patience: Seconds of retries while the registry is busy.
        name: Name as the user writes it, if it differs from the host.

    Raises:
        RegistryFault: The authority's file cannot be used.
    """

    def __init__(
        self,
        host: str,
        credentials: Credentials | None = None,
        *,
        plain: bool = False,
        authority: Path | None = None,
        patience: float = 15.0,
        name: str = "",
    ) -> None:
        self.host = host
        self.name = name or host
        self.sent = 0
        """Number of sent bytes in bodies."""
        self._requests = 0
        self._refused = False
        self._plain = plain
        self._patience = patience
        self._url = f"{'http' if plain else 'https'}://{host}"
        self._origin = _origin(self._url)
        self._session = connections.session(plain, authority)
        self._authorizer = Authorizer(self.name, credentials, self._session, plain, patience)
        hidden = credentials.instead_of if credentials else ""
        self._requester = Requester(self.name, self._authorizer.user, plain, hidden)

    @property
    def requests(self) -> int:
        """Return the number of sent requests, including those for tokens."""
        return self._requests + self._authorizer.requests

    @property
    def refused(self) -> bool:
        """Return whether the credentials were refused: there may be newer ones."""
        return self._refused or self._authorizer.refused

    @property
    def scoped(self) -> bool:
        """Return whether the registry uses tokens: another token may allow more."""
        return self._authorizer.scoped

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def call(
        self,
        method: str,
        place: str,
        scopes: Scopes,
        *,
        accept: Collection[int] = (200,),
        headers: Mapping[str, str] | None = None,
        data: Any = None,
        size: int = 0,
        what: str = "",
    ) -> Answer:
        """Send a request and return its complete answer.

        Args:
            method: HTTP method.
            place: A path below ``/v2/``, or the full address of an upload.
            scopes: Scopes of the request.
            accept: Status codes that are no error.
            headers: Additional headers.
            data: The body: bytes, an open file, or pieces that can be read only once.
            size: Bytes of the body, for the count.
            what: The action, for messages: "push to host/team/model".

        Raises:
            RegistryFault: The registry cannot be reached, or refuses.
        """
        request = Request(method, place, scopes, accept, headers or {}, data, size, what)
        answer = self._call(request)
        assert isinstance(answer, Answer)
        return answer

    def open(self, place: str, scopes: Scopes, what: str, start: int = 0) -> Response:
        """GET a large answer as a stream; the caller reads and closes it.

        Args:
            place: A path below ``/v2/``.
            scopes: Scopes of the request.
            what: The action, for messages.
            start: First wanted byte. A server without parts sends everything, with status 200.

        Raises:
            RegistryFault: The registry cannot be reached, or refuses.
        """
        headers = {"Range": f"bytes={start}-"} if start else {}
        request = Request("GET", place, scopes, headers=headers, what=what)
        answer = self._call(request, unread=(200, 206) if start else (200,))
        assert not isinstance(answer, Answer)
        part = answer.headers.get("Content-Range", "")
        if answer.status_code == 206 and not part.startswith(f"bytes {start}-"):
            answer.close()
            raise RegistryFault(
                f"the registry {self.name} sent another part than the requested ({what}).",
                "Ask its administrator.",
            )
        return answer

    def where(self, answer: Answer) -> str:
        """Return the absolute address of an answer's ``Location``; "" if it has none."""
        place = answer.headers.get("Location", "")
        return self._resolve(answer.url, place) if place else ""

    def _call(self, request: Request, unread: Collection[int] = ()) -> Answer | Response:
        """Send a request; an answer with a status in ``unread`` is returned without its body."""
        begins = request.data.tell() if hasattr(request.data, "seek") else 0
        url = self._resolve(f"{self._url}/v2/", request.place)
        until = time.monotonic() + self._patience
        signed_in, wait = False, 0.3
        while True:
            response = self._follow(request, url)
            self.sent += request.size
            if response.status_code in unread:
                self._refused = False
                return response
            answer = self._read(response, response.status_code in request.accept)
            if answer.code == 401 and not signed_in and _origin(answer.url) == self._origin:
                signed_in = True
                challenge = answer.headers.get("WWW-Authenticate", "")
                authorization = response.request.headers.get("Authorization", "")
                if self._authorizer.answer(challenge, request.scopes, authorization):
                    if request.rewound(begins):
                        continue
                    # The token expired during the upload: repeat all of it with a new token.
                    raise RegistryFault(
                        f"the registry {self.name} requires authentication again ({request.what}).",
                        code=401,
                        passing=True,
                    )
            if answer.code in request.accept:
                if answer.code not in (401, 403):  # only another repository refuses them
                    self._refused = False
                return answer
            if answer.code == 429 or (answer.code == 503 and "Retry-After" in answer.headers):
                seconds = pause(answer.headers, wait)
                if time.monotonic() + seconds < until and request.rewound(begins):
                    time.sleep(seconds)
                    wait *= 2
                    continue
            by_password = response.request.headers.get("Authorization", "").startswith("Basic ")
            self._refused = answer.code == 401 or (answer.code == 403 and by_password)
            if request.method == "HEAD" and answer.code == 403:
                answer = self._with_reason(request, url, answer)
            raise refusal(
                answer, self._requester, request.what, self._authorizer.mask(words(answer))
            )

    def _with_reason(self, request: Request, url: str, answer: Answer) -> Answer:
        """Return the answer that has the reason for the refusal of a HEAD, if there is one."""
        with log.ignored(_log, "asking a registry for its reason", RegistryFault):
            found = self._read(self._follow(request.with_body(), url), False)
            if found.code == answer.code:
                return found
        return answer

    def _follow(self, request: Request, url: str) -> Response:
        """Send a request; follow redirects of GET and HEAD."""
        for _ in range(_HOPS):
            response = self._send(request, url)
            place = response.headers.get("Location")
            reads = request.method in ("GET", "HEAD")
            if not reads or response.status_code not in _REDIRECTS or not place:
                return response
            self._read(response, False)
            url = self._resolve(url, place)
        raise RegistryFault(f"the registry {self.name} redirects too often.")

    def _send(self, request: Request, url: str) -> Response:
        import requests
        import urllib3

        # Send credentials to the registry only, not to the targets of redirects.
        known = self._authorizer.header(request.scopes) if _origin(url) == self._origin else {}
        self._requests += 1
        try:
            return self._session.request(
                request.method,
                url,
                headers={**request.headers, **known},
                data=request.data,
                stream=True,
                timeout=_TIMEOUT if request.data is None else _UPLOADS,
                proxies=connections.proxies(url),
            )
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise unreachable(error, self._requester) from None

    def _read(self, response: Response, whole: bool) -> Answer:
        """Read an answer: all of it, or only enough for an error message."""
        import requests

        limit, found = _LONGEST if whole else _SHORT, bytearray()
        try:
            connections.read(response, limit, found)
        except (requests.RequestException, OSError) as error:
            if whole:
                raise unreachable(error, self._requester) from None
        if whole and len(found) > limit:
            raise RegistryFault(
                f"the registry {self.name} sent more than {limit >> 20} MiB that are not a layer.",
                "Is this an image?",
            )
        return Answer(response.status_code, response.headers, bytes(found[:limit]), response.url)

    def _resolve(self, base: str, place: str) -> str:
        """Return the absolute address; refuse http, unless the user's settings allow it."""
        own = urlsplit(self._url)
        try:
            parts = urlsplit(urljoin(base, place))
            if parts.scheme == "http" and not self._plain and parts.netloc == own.netloc:
                parts = parts._replace(scheme="https")  # a proxy before the registry adds TLS
            kind, host, _ = _origin(parts.geturl())
        except ValueError:
            kind = host = ""
        if not host or kind not in (("https", "http") if self._plain else ("https",)):
            raise RegistryFault(
                f"the registry {self.name} redirects to {kind or 'no'}://{host or 'address'}, "
                "which is not https.",
                "Ask its administrator.",
            )
        return parts.geturl()


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    return parts.scheme, (parts.hostname or "").lower(), port
