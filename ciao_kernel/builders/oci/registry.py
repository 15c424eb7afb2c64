"""Requests to one registry: authorised, followed where it sends them, and asked again.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from ciao_kernel.builders.oci import connections
from ciao_kernel.builders.oci.auth import Authorizer, Scopes
from ciao_kernel.builders.oci.credentials import Credentials
from ciao_kernel.builders.oci.refusals import Answer, Asker, pause, refusal, unreachable, words
from ciao_kernel.errors import RegistryFault

if TYPE_CHECKING:
    from requests import Response

_TIMEOUT = (5.0, 30.0)
"""Seconds to connect, and between two pieces of an answer."""
_UPLOADS = (30.0, 300.0)
"""The same for what has a body: the first is also how long a registry may not take any of it, and
it puts all together before it answers."""
_LONGEST = 4 << 20
"""Bytes of an answer that is not a layer: the most that registries take as a manifest."""
_SHORT = 64 << 10
_HOPS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Registry:
    """One registry, with its connections and tokens kept open for the next cell.

    Args:
        host: Host and port that answer.
        credentials: Who asks; None asks as nobody.
        plain: It speaks http: only where the user's settings name it.
        authority: File of the certificate that signs its own, trusted beside the system's.
        patience: Seconds for which a registry that is busy is asked again.
        name: As people write it, where that is another one.

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
        """Bytes of bodies that were sent."""
        self._requests = 0
        self._refused = False
        self._plain = plain
        self._patience = patience
        self._url = f"{'http' if plain else 'https'}://{host}"
        self._origin = _origin(self._url)
        self._session = connections.session(plain, authority)
        self._authorizer = Authorizer(self.name, credentials, self._session, plain, patience)
        self._asker = Asker(self.name, self._authorizer.user, plain)

    @property
    def requests(self) -> int:
        """How many requests were sent, those for tokens too."""
        return self._requests + self._authorizer.requests

    @property
    def refused(self) -> bool:
        """It did not accept who asked: there may be other credentials by now."""
        return self._refused or self._authorizer.refused

    @property
    def scoped(self) -> bool:
        """It gave tokens: another one may allow more."""
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
        """Send a request and return its answer, read whole.

        Args:
            method: Of HTTP.
            place: A path below ``/v2/``, or the whole address of an upload.
            scopes: What it is for.
            accept: The codes that are no error.
            headers: Further ones.
            data: The body: bytes, an open file, or pieces that come once.
            size: Bytes of the body, for the count.
            what: What is being done, for messages: "push to host/team/model".

        Raises:
            RegistryFault: It cannot be reached, or says no.
        """
        answer = self._call(method, place, scopes, accept, headers, data, size, what, None)
        assert isinstance(answer, Answer)
        return answer

    def open(self, place: str, scopes: Scopes, what: str) -> Response:
        """GET something large; the caller reads and closes it.

        Raises:
            RegistryFault: It cannot be reached, or says no.
        """
        answer = self._call("GET", place, scopes, (200,), None, None, 0, what, 200)
        assert not isinstance(answer, Answer)
        return answer

    def where(self, answer: Answer) -> str:
        """Where an answer's ``Location`` points; "" if it has none."""
        place = answer.headers.get("Location", "")
        return self._resolve(answer.url, place) if place else ""

    def _call(
        self,
        method: str,
        place: str,
        scopes: Scopes,
        accept: Collection[int],
        headers: Mapping[str, str] | None,
        data: Any,
        size: int,
        what: str,
        unread: int | None,
    ) -> Answer | Response:
        url = self._resolve(f"{self._url}/v2/", place)
        until = time.monotonic() + self._patience
        asked, wait = False, 0.3
        while True:
            response = self._follow(method, url, scopes, headers, data)
            self.sent += size
            if response.status_code == unread:
                return response
            answer = self._read(response, response.status_code in accept)
            asks = answer.code == 401 and not asked and _origin(answer.url) == self._origin
            if asks:
                asked = True
                challenge = answer.headers.get("WWW-Authenticate", "")
                told = response.request.headers.get("Authorization", "")
                if self._authorizer.answer(challenge, scopes, told):
                    if _rewound(data):
                        continue
                    # The token ended on the way: all of it again, with a new one.
                    raise RegistryFault(
                        f"the registry {self.name} asked again who you are ({what}).",
                        code=401,
                        passing=True,
                    )
            if answer.code in accept:
                return answer
            if answer.code == 429 or (answer.code == 503 and "Retry-After" in answer.headers):
                seconds = pause(answer.headers, wait)
                if time.monotonic() + seconds < until and _rewound(data):
                    time.sleep(seconds)
                    wait *= 2
                    continue
            self._refused = answer.code == 401
            raise refusal(answer, self._asker, what, self._authorizer.masked(words(answer)))

    def _follow(
        self,
        method: str,
        url: str,
        scopes: Scopes,
        headers: Mapping[str, str] | None,
        data: Any,
    ) -> Response:
        """Send a request, and what only reads also to where the registry points."""
        for _ in range(_HOPS):
            response = self._send(method, url, scopes, headers, data)
            place = response.headers.get("Location")
            if method not in ("GET", "HEAD") or response.status_code not in _REDIRECTS or not place:
                return response
            self._read(response, False)
            url = self._resolve(url, place)
        raise RegistryFault(f"the registry {self.name} sends us round in circles.")

    def _send(
        self,
        method: str,
        url: str,
        scopes: Scopes,
        headers: Mapping[str, str] | None,
        data: Any,
    ) -> Response:
        import requests
        import urllib3

        # Who asks is told to the registry alone, wherever it sends us.
        known = self._authorizer.header(scopes) if _origin(url) == self._origin else {}
        self._requests += 1
        try:
            return self._session.request(
                method,
                url,
                headers={**(headers or {}), **known},
                data=data,
                stream=True,
                timeout=_TIMEOUT if data is None else _UPLOADS,
                proxies=connections.proxies(url),
            )
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise unreachable(error, self._asker) from None

    def _read(self, response: Response, whole: bool) -> Answer:
        """Read an answer: whole, or as much as an error's words need."""
        import requests

        limit, found = _LONGEST if whole else _SHORT, bytearray()
        try:
            connections.read(response, limit, found)
        except (requests.RequestException, OSError) as error:
            if whole:
                raise unreachable(error, self._asker) from None
        if whole and len(found) > limit:
            raise RegistryFault(
                f"the registry {self.name} sent more than {limit >> 20} MiB, and no layer.",
                "Is that an image?",
            )
        return Answer(response.status_code, response.headers, bytes(found[:limit]), response.url)

    def _resolve(self, base: str, place: str) -> str:
        """Return an address, and see that nothing goes in the clear where the user wants https."""
        own = urlsplit(self._url)
        try:
            parts = urlsplit(urljoin(base, place))
            if parts.scheme == "http" and not self._plain and parts.netloc == own.netloc:
                parts = parts._replace(scheme="https")  # it does not know of the proxy before it
            kind, host, _ = _origin(parts.geturl())
        except ValueError:
            kind = host = ""
        if not host or kind not in (("https", "http") if self._plain else ("https",)):
            raise RegistryFault(
                f"the registry {self.name} sends us to {kind or 'no'}://{host or 'address'}, "
                "which is not https.",
                "Ask who runs it.",
            )
        return parts.geturl()


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    return parts.scheme, (parts.hostname or "").lower(), port


def _rewound(data: Any) -> bool:
    """Whether a body can be sent a second time; a file is taken back to its start."""
    if data is None or isinstance(data, bytes):
        return True
    if not hasattr(data, "seek"):
        return False
    data.seek(0)
    return True
