"""Answers a registry's question who asks: Basic, or tokens from the server that it names.

https://distribution.github.io/distribution/spec/auth/token/
"""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci.credentials import Credentials

if TYPE_CHECKING:
    import requests

_DEFAULT_SECONDS = 60
_EARLY = 10
"""Seconds before its end in which a token is no longer used."""

Scopes = tuple[str, ...]
"""What is asked for, such as ``repository:team/model:pull,push``; the one to push to comes first,
because some registries look at that one alone."""


class Authorizer:
    """Keeps the tokens of one registry.

    Args:
        host: Of the registry, for messages.
        credentials: Who asks; None asks as nobody.
        session: Its connections, for the server that hands out tokens.
    """

    def __init__(
        self, host: str, credentials: Credentials | None, session: requests.Session
    ) -> None:
        self._host, self._credentials, self._session = host, credentials, session
        self._basic = ""
        self._tokens: dict[Scopes, tuple[str, float]] = {}

    def header(self, scopes: Scopes) -> dict[str, str]:
        """What to send with a request, as far as it is known."""
        if self._basic:
            return {"Authorization": self._basic}
        token, ends = self._tokens.get(scopes, ("", 0.0))
        return {"Authorization": f"Bearer {token}"} if time.monotonic() < ends else {}

    def answer(self, challenge: str, scopes: Scopes, plain: bool) -> bool:
        """Get what a 401 asks for, and tell whether it is worth asking again with it.

        Args:
            challenge: The answer's ``WWW-Authenticate``.
            scopes: What the request is for.
            plain: The registry itself speaks http.

        Raises:
            RegistryFault: The token server says no, or cannot be used.
        """
        import requests

        kind, _, rest = challenge.partition(" ")
        if kind.lower() == "basic":
            known, self._basic = self._basic, _basic(self._credentials)
            return self._basic not in ("", known)
        if kind.lower() != "bearer":
            return False
        asked: dict[str, str | None] = requests.utils.parse_dict_header(rest)  # type: ignore[no-untyped-call]
        realm = asked.get("realm") or ""
        safe = realm.startswith("https://") or (plain and realm.startswith("http://"))
        if not safe:
            raise RegistryFault(
                f"{self._host} names {realm or 'nothing'} as its token server.",
                "It has to be an https:// address; ask who runs the registry.",
            )
        self._tokens[scopes] = self._token(realm, asked.get("service") or "", scopes)
        return True

    def _token(self, realm: str, service: str, scopes: Scopes) -> tuple[str, float]:
        import requests

        known = self._credentials
        try:
            if known and known.identity_token:
                form = {
                    "grant_type": "refresh_token",
                    "refresh_token": known.identity_token,
                    "service": service,
                    "scope": " ".join(scopes),
                    "client_id": "ciao",
                }
                answer = self._session.post(realm, data=form, timeout=(5, 30))
            else:
                query: list[tuple[str, str]] = [("service", service)]
                query += [("scope", scope) for scope in scopes]
                headers = {"Authorization": _basic(known)} if known else {}
                answer = self._session.get(realm, params=query, headers=headers, timeout=(5, 30))
        except requests.RequestException as error:
            raise RegistryFault(
                f"the token server of {self._host} ({urlsplit(realm).netloc}) does not answer: "
                f"{type(error).__name__}.",
                "Is it up, and can this machine reach it?",
                passing=isinstance(error, requests.ConnectionError | requests.Timeout),
            ) from None
        if answer.status_code != 200:
            raise _no_token(self._host, answer.status_code, known)
        body: Any = _json(answer)
        token = body.get("token") or body.get("access_token")
        if not token:
            raise RegistryFault(f"the token server of {self._host} sent no token.", "")
        seconds = body.get("expires_in")
        seconds = seconds if isinstance(seconds, int) and seconds > 0 else _DEFAULT_SECONDS
        return str(token), time.monotonic() + max(1, seconds - _EARLY)


def _no_token(host: str, code: int, known: Credentials | None) -> RegistryFault:
    if code in (400, 401, 403):
        who = f"the credentials of {known.user or 'the token'}" if known else "an anonymous user"
        return RegistryFault(
            f"{host} does not accept {who} (its token server said {code}).",
            f"`docker login {host}` on this machine, or name a Secret: %pushSecret=….",
            code=401,
        )
    return RegistryFault(
        f"the token server of {host} said {code}.",
        "Try again later.",
        code=code,
        passing=code >= 500,
    )


def _basic(credentials: Credentials | None) -> str:
    if credentials is None or not credentials.user:
        return ""
    both = f"{credentials.user}:{credentials.password}".encode()
    return f"Basic {base64.b64encode(both).decode()}"


def _json(answer: requests.Response) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
