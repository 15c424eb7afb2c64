"""Authentication at a registry: Basic, or tokens from the token server that it names.

https://distribution.github.io/distribution/spec/auth/token/
"""

from __future__ import annotations

import base64
import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci import connections
from ciao_kernel.oci.credentials import Credentials
from ciao_kernel.oci.registry_errors import Requester, later, parsed, pause

if TYPE_CHECKING:
    import requests

_DEFAULT_SECONDS = 60
_EARLY = 10
"""Seconds before its expiry at which a token is no longer used."""
_TIMEOUT = (5, 30)
_LONGEST = 1 << 20
"""Largest answer of a token server, in bytes; the rest is not read."""
_PARAMETER = r'([A-Za-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))'
_PIECE = re.compile(rf"[\s,]*(?:{_PARAMETER}|([A-Za-z][\w-]*)(?=\s|,|$))")

Scopes = tuple[str, ...]
"""Requested scopes, such as ``repository:team/model:pull,push``; the scope of a push comes first,
because some registries use only the first one."""


def challenges(header: str) -> list[tuple[str, dict[str, str]]]:
    """Parse a ``WWW-Authenticate`` header: the schemes in lower case, with their parameters."""
    found: list[tuple[str, dict[str, str]]] = []
    at = 0
    while match := _PIECE.match(header, at):
        name, quoted, bare, kind = match.groups()
        if kind:
            found.append((kind.lower(), {}))
        elif found:
            value = bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            found[-1][1].setdefault(name.lower(), value)
        at = match.end()
    return found


class Authorizer:
    """Keeps the tokens of one registry.

    Args:
        name: Name of the registry, for messages.
        credentials: Credentials of the user; None means anonymous.
        session: Connections of the registry, also used for its token server.
        plain: The registry itself uses http.
        patience: Seconds of retries while a token server is busy.
    """

    def __init__(
        self,
        name: str,
        credentials: Credentials | None,
        session: requests.Session,
        plain: bool,
        patience: float = 15.0,
    ) -> None:
        self._name, self._credentials, self._session = name, credentials, session
        self._plain, self._patience = plain, patience
        self._basic = ""
        self._tokens: dict[Scopes, tuple[str, float]] = {}
        self._servers: dict[Scopes, tuple[str, str, Scopes]] = {}
        """Origin of each token: server, service, and the requested scopes."""
        self.requests = 0
        """Number of sent requests."""
        self.refused = False
        """The token server did not accept the credentials."""

    @property
    def user(self) -> str:
        """Return the name of the user, for messages; "" means anonymous."""
        known = self._credentials
        if known is None or not (known.user or known.identity_token):
            return ""
        return known.user or "the owner of the token"

    @property
    def scoped(self) -> bool:
        """Return whether there are tokens, which are valid for some scopes only."""
        return bool(self._tokens)

    def header(self, scopes: Scopes) -> dict[str, str]:
        """Return the known authentication header for a request; an expired token is renewed.

        Raises:
            RegistryFault: The token server refuses, or cannot be used.
        """
        if self._basic:
            return {"Authorization": self._basic}
        known = self._tokens.get(scopes)  # other threads may change it at the same time
        if known is None:
            return {}
        if time.monotonic() >= known[1]:
            self._tokens.pop(scopes, None)
            known = self._tokens[scopes] = self._token(*self._servers[scopes])
        return {"Authorization": f"Bearer {known[0]}"}

    def answer(self, challenge: str, scopes: Scopes, told: str = "") -> bool:
        """Get the authentication that a 401 requires, and return whether to retry the request.

        Args:
            challenge: The answer's ``WWW-Authenticate`` header.
            scopes: Scopes of the request.
            told: The request's ``Authorization`` header; another thread may have got a new one
                since.

        Raises:
            RegistryFault: The token server refuses, or cannot be used.
        """
        offers = challenges(challenge)
        for kind, asked in offers:
            if kind == "bearer":
                further = (one for one in asked.get("scope", "").split() if not _has(scopes, one))
                server = (self._realm(asked), asked.get("service", ""), (*scopes, *further))
                self._tokens[scopes] = self._token(*server)
                self._servers[scopes] = server
                return True
        if any(kind == "basic" for kind, _ in offers):
            self._basic = _basic(self._credentials)
            return self._basic not in ("", told)
        return False

    def mask(self, text: str) -> str:
        """Return a registry's text with our secrets masked."""
        known = self._credentials or Credentials()
        tokens = [one for one, _ in list(self._tokens.values())]
        plain = [known.password, known.identity_token, *tokens]
        coded = [self._basic.removeprefix("Basic "), quote(known.password, safe="")]
        for secret in sorted(filter(None, plain + coded), key=len, reverse=True):
            text = text.replace(secret, "…")
        return text

    def _realm(self, asked: dict[str, str]) -> str:
        realm = asked.get("realm", "")
        try:
            parts = urlsplit(realm)
            safe = parts.scheme == "https" or (self._plain and parts.scheme == "http")
            named = f"{parts.scheme}://{parts.hostname}" if parts.hostname else ""
        except ValueError:
            named = ""
        if not named or not safe:
            raise RegistryFault(
                f"{self._name} names {named or 'no address'} as its token server.",
                "It has to be an https:// address; ask the registry's administrator.",
            )
        return realm

    def _token(self, realm: str, service: str, scopes: Scopes) -> tuple[str, float]:
        until, wait = time.monotonic() + self._patience, 0.3
        while True:
            answer, raw = self._answered(realm, service, scopes)
            seconds = pause(answer.headers, wait)
            busy = answer.status_code == 429 or (
                answer.status_code == 503 and "Retry-After" in answer.headers
            )
            if not busy or time.monotonic() + seconds >= until:
                break
            time.sleep(seconds)
            wait *= 2
        if answer.status_code != 200:
            raise self._no_token(answer)
        self.refused = False
        found: Any = parsed(raw)
        body = found if isinstance(found, dict) else {}
        token = str(body.get("token") or body.get("access_token") or "")
        if not token or not token.isascii() or not token.isprintable():
            raise RegistryFault(f"the token server of {self._name} sent no token.")
        lasts = body.get("expires_in")
        lasts = lasts if isinstance(lasts, int) and lasts > 0 else _DEFAULT_SECONDS
        return token, time.monotonic() + max(1, lasts - _EARLY)

    def _answered(
        self, realm: str, service: str, scopes: Scopes
    ) -> tuple[requests.Response, bytes]:
        """Send one request for a token, and read the answer."""
        import requests
        import urllib3

        self.requests += 1
        raw = bytearray()
        try:
            answer = self._ask(realm, service, scopes)
            connections.read(answer, _LONGEST, raw)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise RegistryFault(
                f"the token server of {self._name} ({urlsplit(realm).hostname}) does not answer: "
                f"{type(error).__name__}.",
                "Is it up, and can this machine reach it?",
                passing=isinstance(error, requests.ConnectionError)
                and not isinstance(error, requests.Timeout | requests.exceptions.SSLError),
            ) from None
        return answer, bytes(raw)

    def _ask(self, realm: str, service: str, scopes: Scopes) -> requests.Response:
        known = self._credentials
        through = connections.proxies(realm)
        if known and known.identity_token:
            form = {
                "grant_type": "refresh_token",
                "refresh_token": known.identity_token,
                "service": service,
                "scope": " ".join(scopes),
                "client_id": "ciao",
            }
            return self._session.post(
                realm, data=form, timeout=_TIMEOUT, proxies=through, stream=True
            )
        query = [("service", service)] if service else []
        query += [("scope", scope) for scope in scopes]
        headers = {"Authorization": basic} if (basic := _basic(known)) else {}
        return self._session.get(
            realm,
            params=query,
            headers=headers,
            timeout=_TIMEOUT,
            proxies=through,
            stream=True,
        )

    def _no_token(self, answer: requests.Response) -> RegistryFault:
        code = answer.status_code
        if code in (400, 401, 403):
            self.refused = True
            hidden = self._credentials.instead_of if self._credentials else ""
            who = f"the credentials of {self.user}" if self.user else "an anonymous user"
            return RegistryFault(
                f"the registry {self._name} does not accept {who} "
                f"(its token server answered {code}).",
                Requester(self._name, hidden_secret=hidden).login,
                code=401,
            )
        if code == 429:
            return RegistryFault(
                f"the token server of {self._name} gets too many requests.",
                later(answer.headers),
                code=code,
            )
        return RegistryFault(
            f"the token server of {self._name} answered {code}.",
            "Try again later.",
            code=code,
            passing=code >= 500,
        )


def _has(scopes: Scopes, scope: str) -> bool:
    """Return whether the scopes have that repository already; its actions are not compared."""
    return any(one.rpartition(":")[0] == scope.rpartition(":")[0] for one in scopes)


def _basic(credentials: Credentials | None) -> str:
    if credentials is None or not credentials.user:
        return ""
    both = f"{credentials.user}:{credentials.password}".encode()
    return f"Basic {base64.b64encode(both).decode()}"
