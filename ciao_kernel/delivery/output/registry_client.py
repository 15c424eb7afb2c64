"""Requests to a registry from a pod, with authentication.

This file runs in pods, with the standard library of Python 3.8. The kernel's own client, with
proxies, mounts and uploads that go on, is :mod:`ciao_kernel.oci`.
https://distribution.github.io/distribution/spec/auth/token/
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

_SILENT = 120.0
_LONGEST = 1 << 20
_PASSING = (408, 429, 500, 502, 503, 504)
_TOKENS = 3
"""Times that a request is sent, each with a new token after the first."""
_PARAMETER = re.compile(r'\b(\w+)="([^"]*)"')


class Fault(Exception):
    """A registry refuses, or cannot be reached. No secret is in its text."""

    def __init__(self, text: str, passing: bool = False) -> None:
        super().__init__(text)
        self.passing = passing


class Registry:
    """One registry; several threads may use it.

    Args:
        told: ``url``, its ``name`` for messages, the ``repository``, the ``keys`` under which a
            file of docker may have its password, that file (``config``; "" asks for no password),
            and the certificate ``authority`` as text.
    """

    fault = Fault

    def __init__(self, told: dict[str, Any]) -> None:
        self._url, self._name, self._keys = told["url"], told["name"], told["keys"]
        self._scope = "repository:" + told["repository"] + ":pull,push"
        self._config = str(told.get("config") or "")
        self._plain = self._url.startswith("http:")
        self._context = None if self._plain else ssl.create_default_context()
        if self._context and told.get("authority"):
            self._context.load_verify_locations(cadata=told["authority"])
            # From 3.13 on Python refuses authorities without some extensions, which no other client
            # of a registry asks for.
            self._context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._open: dict[tuple[str, str], list[http.client.HTTPConnection]] = {}
        """Connections that are free; each thread takes one."""
        self._header, self._until, self._challenge = "", float("inf"), ""
        self._signing_in = threading.Lock()

    def resolve(self, path: str, place: str) -> str:
        """Return an absolute address that the registry names."""
        if not place:
            raise Fault("the registry " + self._name + " did not open an upload", True)
        address, own = urlsplit(urljoin(self._url + path, place)), urlsplit(self._url)
        if address.netloc == own.netloc:  # a proxy before it adds TLS
            address = address._replace(scheme=own.scheme)
        if address.scheme not in (("http", "https") if self._plain else ("https",)):
            raise Fault("the registry " + self._name + " sends uploads to http")
        return str(address.geturl())

    def call(
        self,
        method: str,
        place: str,
        what: str,
        accept: tuple[int, ...],
        headers: dict[str, str] | None = None,
        body: Callable[[], Iterable[bytes]] | None = None,
    ) -> tuple[int, Any]:
        """Send a request; return the status and the headers of its answer.

        Args:
            method: HTTP method.
            place: Path, or address of an upload.
            what: What it is about, for messages.
            accept: Statuses that are no fault.
            headers: More headers.
            body: Returns the body, as often as it is called.
        """
        address = urljoin(self._url, place)
        own = urlsplit(address)[:2] == urlsplit(self._url)[:2]
        # Another thread's token may end while this request waits for it.
        for tries in range(_TOKENS):
            if own and self._challenge and time.monotonic() > self._until:
                self._renew(self._challenge, self._header)
            sent, header = dict(headers or {}), self._header if own else ""
            if header:
                sent["Authorization"] = header
            code, told, _ = self._send(method, address, sent, body and body())
            if code in accept:
                break
            if code != 401 or not own or tries == _TOKENS - 1:
                break
            self._renew(told.get("WWW-Authenticate", ""), header)
        if code not in accept:
            text = "the registry " + self._name + " refused " + what + ": HTTP " + str(code)
            raise Fault(text, code in _PASSING)
        return code, told

    def _send(
        self, method: str, address: str, headers: dict[str, str], body: Any = None
    ) -> tuple[int, Any, bytes]:
        parts = urlsplit(address)
        key = (parts.scheme, parts.netloc)
        free = self._open.setdefault(key, [])
        try:
            connection = free.pop()
        except IndexError:
            connection = self._connect(*key)
        path = (parts.path or "/") + ("?" + parts.query if parts.query else "")
        try:
            # A server may answer before it has read the body.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, body, headers)
            answer = connection.getresponse()
            data = answer.read(_LONGEST)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._away(parts.hostname or "", error) from None
        except BaseException:
            connection.close()
            raise
        if answer.will_close or not answer.isclosed():
            connection.close()
        else:
            free.append(connection)
        return answer.status, answer.headers, data

    def _connect(self, scheme: str, place: str) -> http.client.HTTPConnection:
        if scheme == "https":
            context = self._context or ssl.create_default_context()
            return http.client.HTTPSConnection(place, timeout=_SILENT, context=context)
        return http.client.HTTPConnection(place, timeout=_SILENT)

    def _away(self, host: str, error: Exception) -> Fault:
        why = getattr(error, "verify_message", "") or getattr(error, "strerror", "")
        text = "the registry " + self._name + " cannot be reached from the pod"
        text += "" if host == urlsplit(self._url).hostname else " (" + host + ")"
        distrusted = isinstance(error, ssl.SSLCertVerificationError)
        return Fault(text + ": " + str(why or type(error).__name__), not distrusted)

    # ------------------------------------------------------------------ who asks

    def _renew(self, challenge: str, old: str) -> None:
        """Sign in, unless another thread has done so since a request with an old header."""
        with self._signing_in:
            if self._header == old:
                self._sign_in(challenge)

    def _sign_in(self, challenge: str) -> None:
        """Get what a registry asks for: a token of its token server, or the password itself."""
        kind, _, rest = challenge.partition(" ")
        user, password, identity = self._credentials()
        basic = ""
        if user:
            basic = "Basic " + base64.b64encode((user + ":" + password).encode()).decode()
        if kind.lower() != "bearer":
            self._header = basic
            return
        asked = dict(_PARAMETER.findall(rest))
        realm, service = asked.get("realm", ""), asked.get("service", "")
        if urlsplit(realm).scheme not in (("http", "https") if self._plain else ("https",)):
            raise Fault("the token server of the registry " + self._name + " is not https")
        query = {"service": service, "scope": self._scope}
        form: list[bytes] | None = None
        headers = {"Authorization": basic} if basic else {}
        if identity:
            more = {"grant_type": "refresh_token", "refresh_token": identity, "client_id": "ciao"}
            form = [urlencode({**query, **more}).encode()]
            headers = {
                "Content-Type": "application/x-www-form-urlencoded",
                "Content-Length": str(len(form[0])),
            }
        else:
            realm += ("&" if "?" in realm else "?") + urlencode(query)
        code, _, data = self._send("POST" if form else "GET", realm, headers, form)
        text = "the token server of the registry " + self._name
        if code != 200:
            raise Fault(text + " refused a token: HTTP " + str(code), code in _PASSING)
        try:
            body = json.loads(data)
            token = str(body.get("token") or body["access_token"])
            seconds = float(body.get("expires_in") or 60)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Fault(text + " sent no token") from None
        self._header, self._challenge = "Bearer " + token, challenge
        self._until = time.monotonic() + seconds / 2  # an upload may take long

    def _credentials(self) -> tuple[str, str, str]:
        """Return user, password and identity token; read each time, as a Secret may change."""
        if not self._config:
            return "", "", ""
        try:
            with open(self._config) as file:
                entries = json.load(file)["auths"]
            known = {_normal(name): one for name, one in entries.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise Fault("the Secret with the registry's password cannot be read") from None
        for key in self._keys:
            one = known.get(key)
            if not isinstance(one, dict):
                continue
            if one.get("identitytoken"):
                return "", "", str(one["identitytoken"])
            try:
                both = base64.b64decode(str(one.get("auth") or "")).decode()
            except ValueError:
                raise Fault("the Secret with the registry's password cannot be read") from None
            user, _, password = both.partition(":")
            if user or one.get("username"):
                return user or one["username"], password or str(one.get("password") or ""), ""
        return "", "", ""


def _normal(key: str) -> str:
    key = re.sub("^https?://", "", key).rstrip("/")
    return re.sub("/v[12]$", "", key)
