"""Connections to registries: trusted authorities and proxies."""

from __future__ import annotations

import logging
import os
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ciao_kernel.errors import RegistryFault
from ciao_kernel.proxies import proxy_of

if TYPE_CHECKING:
    import requests

_log = logging.getLogger(__name__)

_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables that name additional authorities; Python itself reads SSL_CERT_FILE."""
_PIECE = 64 << 10


def session(plain: bool, authority: Path | None) -> requests.Session:
    """Open a session that takes only the certificate authorities from the environment.

    Args:
        plain: The registry needs no certificates.
        authority: File of an authority to trust, in addition to the system's and certifi's.

    Raises:
        RegistryFault: The authority's file cannot be used.
    """
    import requests

    class Session(requests.Session):
        def get_redirect_target(self, resp: requests.Response) -> str | None:
            return None  # callers follow redirects; requests would read a hostile answer whole

        def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
            parts = urlsplit(request.url or "")
            # A query may have the signature of an upload or of a download.
            asked = f"{request.method} {parts.scheme}://{parts.netloc}{parts.path}"
            began = time.monotonic()
            try:
                answer = super().send(request, **options)
            except Exception as error:
                seconds = time.monotonic() - began
                # Errors of requests quote the whole address, so only their kind is logged.
                kind = type(error).__name__
                _log.debug("%s failed after %.3f s: %s", asked, seconds, kind)
                raise
            seconds = time.monotonic() - began
            _log.debug("%s: %d in %.3f s", asked, answer.status_code, seconds)
            return answer

    made = Session()
    # Otherwise ~/.netrc would override our credentials, and REQUESTS_CA_BUNDLE our authority.
    made.trust_env = False
    made.headers["User-Agent"] = "ciao"
    # A proxy that compresses a layer again would change its length and its digest.
    made.headers["Accept-Encoding"] = "identity"
    if authority or not plain:
        made.mount("https://", _adapter(_trust(authority)))
    return made


def proxies(url: str) -> dict[str, str]:
    """Return the proxy for an address as requests expects it; none if NO_PROXY lists it."""
    found = proxy_of(url)
    return {urlsplit(url).scheme: found} if found else {}


def read(answer: requests.Response, limit: int, into: bytearray) -> None:
    """Read an answer, at most one byte more than the limit: this byte shows that it is too long.

    Args:
        answer: A streamed answer; it is closed afterwards.
        limit: Limit in bytes.
        into: Receives the bytes, even if the answer breaks off.

    Raises:
        requests.RequestException: The answer broke off.
        OSError: The answer broke off.
    """
    try:
        for piece in answer.iter_content(_PIECE):
            into += piece[: limit + 1 - len(into)]
            if len(into) > limit:
                break
    finally:
        answer.close()


def _trust(authority: Path | None) -> ssl.SSLContext:
    import certifi

    context = ssl.create_default_context()
    bundles = (os.environ.get(name) for name in _BUNDLES)
    for bundle in (certifi.where(), *bundles):
        if bundle and Path(bundle).is_file():
            context.load_verify_locations(bundle)
    if authority:
        try:
            context.load_verify_locations(authority)
        except (OSError, ValueError) as error:  # errors of ssl are OSErrors, too
            why = "it has no certificate" if isinstance(error, ssl.SSLError) else _words(error)
            raise RegistryFault(
                f"the registry authority {authority} cannot be used: {why}.",
                "`%ciao config registryAuthority=FILE` names a file of certificates (PEM).",
            ) from None
    return context


def _words(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


def _adapter(context: ssl.SSLContext) -> requests.adapters.HTTPAdapter:
    """Return an adapter whose connections share a context: reading authorities takes some 30 ms."""
    import requests

    class Adapter(requests.adapters.HTTPAdapter):
        def init_poolmanager(self, *args: Any, **more: Any) -> None:
            super().init_poolmanager(*args, ssl_context=context, **more)

        def proxy_manager_for(self, proxy: Any, **more: Any) -> Any:
            return super().proxy_manager_for(proxy, ssl_context=context, **more)

        def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
            conn.cert_reqs = "CERT_REQUIRED"  # trust only the context's authorities

    return Adapter()
