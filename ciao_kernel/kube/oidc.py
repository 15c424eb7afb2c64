"""The auth-provider ``oidc`` of a kubeconfig: an ID token, and a refresh token for the next one.

The entries are those of client-go (plugin/pkg/client/auth/oidc/oidc.go), the requests those of
OpenID Connect Discovery 1.0 and of RFC 6749, section 6. A new token is kept in memory only: unlike
kubectl, ciao does not write to a kubeconfig.
"""

from __future__ import annotations

import base64
import json
import math
import ssl
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

from ciao_kernel import proxies
from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube.kubeconfig import Entry
from ciao_kernel.kube.server_clock import SKEW
from ciao_kernel.redaction import origin

if TYPE_CHECKING:
    import aiohttp

_LEFT = 10.0
"""Seconds for which a token must be valid to be used, as in client-go."""
_TIMEOUT = 30.0
_NOT_SO = (400, 401)
"""Statuses of a server that does not accept the client's password in the header."""
_rotated: dict[tuple[str, str, str], str] = {}
"""The next refresh token, where an issuer takes each only once; by issuer, client and the token of
the kubeconfig."""


async def token(config: Entry) -> tuple[str, float]:
    """Return an ID token and its expiry (seconds since the epoch).

    Args:
        config: The provider's configuration in the kubeconfig.

    Raises:
        ClusterFault: The token expired, and its issuer gave no other one.
        OSError, ValueError: The issuer's authority cannot be read.
    """
    found = config.text("id-token")
    if found and (until := _expiry(found)) > time.time() + _LEFT:
        return found, until
    if not config.text("refresh-token"):
        if found and until > time.time() - SKEW:  # or this machine's clock is ahead
            return found, math.inf
        raise _failed("the token expired, and there is no refresh-token")
    found = await _refreshed(config)
    until = _expiry(found)
    # A new token that has ended by this machine's clock is the server's to judge.
    return found, until if until > time.time() + _LEFT else math.inf


def _expiry(token: str) -> float:
    """Return the expiry of a JSON web token; infinite if it has none, 0 if it is no such token."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims.get("exp", math.inf))
    except (IndexError, ValueError, TypeError, AttributeError):
        return 0.0


async def _refreshed(config: Entry) -> str:
    import aiohttp

    authority = config.content("idp-certificate-authority")
    trust = ssl.create_default_context()
    if authority:
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust.load_verify_locations(cadata=authority.decode("ascii", "replace"))
    issuer = config.text("idp-issuer-url").rstrip("/")
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
    try:
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trust), timeout=timeout
        ) as session:
            place = f"{issuer}/.well-known/openid-configuration"
            _, known = await _ask(session, "GET", place)
            endpoint = str(known.get("token_endpoint") or "")
            if not endpoint.startswith("https://"):
                raise _failed(f"{origin(issuer)} names no token endpoint with https")
            return await _exchanged(session, endpoint, config)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        # The error itself may quote a password of a proxy.
        raise _failed(f"{origin(issuer) or 'its issuer'}: {type(error).__name__}") from None


async def _exchanged(session: aiohttp.ClientSession, endpoint: str, config: Entry) -> str:
    """Return an ID token for the newest refresh token, or for the one of the kubeconfig."""
    given = config.text("refresh-token")
    key = (config.text("idp-issuer-url"), config.text("client-id"), given)
    newest = _rotated.get(key, given)
    status, answer = await _exchange(session, endpoint, config, newest)
    if status in _NOT_SO and newest != given:  # the user may have signed in again
        _rotated.pop(key, None)
        newest = given
        status, answer = await _exchange(session, endpoint, config, newest)
    if not answer.get("id_token"):
        why = str(answer.get("error") or "")[:60]
        raise _failed(f"{origin(endpoint)} gave no ID token ({status} {why}".rstrip() + ")")
    # Without a new refresh token the old one stays valid (RFC 6749, section 6).
    _rotated[key] = str(answer.get("refresh_token") or newest)
    return str(answer["id_token"])


async def _exchange(
    session: aiohttp.ClientSession, endpoint: str, config: Entry, refresh: str
) -> tuple[int, dict[str, Any]]:
    """Ask for an ID token by a refresh token; return the status and the answer.

    Servers accept the client's password in a header or in the form, some only one of them; the
    header is the standard.
    """
    name, password = config.text("client-id"), config.text("client-secret")
    form = {"grant_type": "refresh_token", "refresh_token": refresh}
    pair = base64.b64encode(f"{quote_plus(name)}:{quote_plus(password)}".encode()).decode()
    header = {"Authorization": f"Basic {pair}"}
    named = {"client_id": name} | ({"client_secret": password} if password else {})
    status, answer = await _ask(session, "POST", endpoint, headers=header, data=form)
    if status in _NOT_SO:
        status, answer = await _ask(session, "POST", endpoint, data=form | named)
    return status, answer


async def _ask(
    session: aiohttp.ClientSession, method: str, url: str, **options: Any
) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON object of an answer; {} if it has none."""
    proxy = proxies.proxy_of(url, general=False) or None
    async with session.request(
        method, url, proxy=proxy, allow_redirects=method == "GET", **options
    ) as answer:
        body = await answer.read()
        led = (*answer.history[1:], answer) if answer.history else ()
        if any(one.url.scheme != "https" for one in led):
            raise _failed(f"{origin(url)} leads to an address without https")
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    return answer.status, found if isinstance(found, dict) else {}


def _failed(why: str) -> ClusterFault:
    return ClusterFault(
        f"the ID token of the kubeconfig cannot be renewed: {why}.",
        "Sign in again, or use a sign-in program such as kubelogin (`exec` in the kubeconfig).",
    )
