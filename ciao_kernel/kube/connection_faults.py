"""Faults of a connection to an API server: what a missing answer means, and how to tell it.

The client library's own messages are never shown: they quote addresses, which may have a password.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import ssl
from typing import TYPE_CHECKING

from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube.access import Access
from ciao_kernel.kube.responses import InvalidResponse
from ciao_kernel.redaction import mask

if TYPE_CHECKING:
    import aiohttp

_NAME_WAIT = 3.0
"""Seconds of retries if the host name cannot be resolved: the network may just be starting."""
_NO_SUCH_CERTIFICATE = re.compile(r"(?i)alert[ _](\w* ?certificate|unknown[ _]ca|access[ _]denied)")
_PASSWORD_WANTED = 407
_PROXY_PASSES = frozenset({408, 425, 429, *range(500, 600)})
"""Status codes of a proxy after which a retry may help; wrong passwords may lock the account."""


def is_certificate_rejected(error: Exception, access: Access) -> bool:
    """Return whether the server refused our certificate: it may be expired or replaced."""
    # Since TLS 1.3 this error may occur only when the first answer is read.
    return access.certified and any(
        isinstance(one, ssl.SSLError) and _NO_SUCH_CERTIFICATE.search(str(one))
        for one in (error, error.__cause__)
    )


def is_failure(error: Exception) -> bool:
    """Return whether an error means that a request had no answer, or could not be sent."""
    if isinstance(error, OSError | ValueError):
        return True
    import aiohttp

    return isinstance(error, aiohttp.ClientError)


def away(error: Exception, access: Access) -> tuple[ClusterFault, float]:
    """Return the error for a missing answer, and for how many seconds to retry."""
    import aiohttp

    place = f"the cluster of {access.source} ({mask(access.server.address)})"
    cause = _cause(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return ClusterFault(
            f"{place} is not trusted: {_untrusted(cause)}.",
            "Does the certificate-authority of the kubeconfig belong to this cluster? A recreated "
            "cluster needs a new kubeconfig.",
        ), 0.0
    if isinstance(cause, ssl.SSLError) and ("ALERT" in str(cause) or "WRONG_VERS" in str(cause)):
        return ClusterFault(
            f"the TLS handshake with {place} failed: {_tls(cause)}.",
            "Is its address http:// instead of https://? Do the certificates of the kubeconfig "
            "belong to it?",
        ), 0.0
    if isinstance(error, aiohttp.InvalidURL | ValueError):
        return ClusterFault(
            f"no request can be sent to {place}: {type(error).__name__}.",
            "Check the server, the proxy-url and the token in the kubeconfig: "
            "`kubectl config view`.",
        ), 0.0
    hint = "Are the server and the network up?"
    if access.context:
        hint += " `%ciao config context=…` chooses another cluster."
    patience = _NAME_WAIT if isinstance(cause, socket.gaierror) else float("inf")
    if isinstance(error, aiohttp.ClientHttpProxyError | aiohttp.ClientProxyConnectionError):
        hint = "The proxy-url of the kubeconfig, or else HTTPS_PROXY, names the proxy."
    if isinstance(error, aiohttp.ClientHttpProxyError):
        if error.status == _PASSWORD_WANTED:
            hint = (
                "Put both into the proxy-url of the kubeconfig, or into HTTPS_PROXY: "
                "http://USER:PASSWORD@HOST:PORT."
            )
        patience = float("inf") if error.status in _PROXY_PASSES else 0.0
    return ClusterFault(f"{place} does not answer: {why(error)}.", hint, unreachable=True), patience


def why(error: Exception) -> str:
    """Return the reason for a missing answer, without secrets.

    The client library's own messages cannot be shown: they quote addresses, and the address of a
    proxy may contain a password.
    """
    import aiohttp

    cause = _cause(error)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        if error.status == _PASSWORD_WANTED:
            return "the proxy requires a valid user and password (407)"
        return f"the proxy did not open the connection ({_status(error)})"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the answer was {_status(error)}"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"the proxy cannot be reached: {_of_system(cause)}"
    if isinstance(cause, OSError):
        return _of_system(cause)
    if isinstance(error, json.JSONDecodeError):
        return "its answer is not JSON"
    if isinstance(error, ValueError) and not isinstance(error, InvalidResponse):
        return type(error).__name__
    return _shown(str(error)) or type(error).__name__


def _of_system(error: Exception) -> str:
    """Return a text for a connection error of the operating system or of TLS."""
    code = getattr(error, "errno", None)
    if isinstance(error, socket.gaierror):
        return f"the host name cannot be resolved: {error.strerror or error}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"it is not trusted: {_untrusted(error)}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {_tls(error)}"
    if code == errno.ECONNREFUSED:
        return "connection refused, nothing listens there"
    # asyncio replaces the system's message by its own: "Connect call failed".
    words = os.strerror(code) if isinstance(code, int) and code > 0 else str(error)
    place = getattr(error, "filename", None)
    return _shown(f"{words}: {place}" if place else words) or type(error).__name__


def _cause(error: Exception) -> Exception:
    """Return the system error inside the client library's error."""
    found = getattr(error, "os_error", None) or getattr(error, "certificate_error", None)
    return found if isinstance(found, Exception) else error


def _untrusted(error: ssl.SSLCertVerificationError) -> str:
    words: str = getattr(error, "verify_message", "")
    return words or "its certificate is not valid"


def _tls(error: ssl.SSLError) -> str:
    # Only errors raised by OpenSSL have a reason.
    reason: str = getattr(error, "reason", "") or ""
    return reason.replace("_", " ").lower() or _shown(str(error)) or "no reason given"


def _status(error: aiohttp.ClientResponseError) -> str:
    return f"{error.status} {_shown(error.message)}".rstrip()


def _shown(text: str) -> str:
    """Return foreign text on one line, with passwords in addresses masked."""
    return " ".join(mask(text[:20_000]).split())[:300]
