"""Connections to registries: trusted authorities and proxies."""

from __future__ import annotations

import logging
import os
import ssl
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
_BUNDLE_HINT = "The variable names a file of certificates (PEM), or a folder of them."
_AUTHORITY_HINT = "`%ciao config registryAuthority=FILE` names a file of certificates (PEM)."
_PIECE = 64 << 10


def session(plain: bool, authority: Path | None) -> requests.Session:
    """Open a session that takes only the certificate authorities from the environment.

    Args:
        plain: The registry needs no certificates.
        authority: File of an authority to trust, in addition to the system's and certifi's.

    Raises:
        RegistryFault: The authority's file, or one of the environment, cannot be used.
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
    if (own := Path(certifi.where())).is_file():
        context.load_verify_locations(own)
    for name in _BUNDLES:
        if bundle := os.environ.get(name):
            with _explained(f"the file {bundle} of the variable {name}", _BUNDLE_HINT):
                _load(context, Path(bundle))
    if authority:
        with _explained(f"the registry authority {authority}", _AUTHORITY_HINT):
            context.load_verify_locations(authority)
    return context


def _load(context: ssl.SSLContext, bundle: Path) -> None:
    """Trust the authorities of a file or, as requests does, of a folder; it may be missing."""
    try:
        mode = bundle.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISDIR(mode):
        context.load_verify_locations(capath=bundle)
    elif stat.S_ISREG(mode):
        context.load_verify_locations(cafile=bundle)


@contextmanager
def _explained(what: str, hint: str) -> Iterator[None]:
    """Explain the errors of reading a file of certificates.

    Raises:
        RegistryFault: It cannot be used.
    """
    try:
        yield
    except (OSError, ValueError) as error:  # errors of ssl are OSErrors, too
        why = "it has no certificate" if isinstance(error, ssl.SSLError) else _words(error)
        raise RegistryFault(f"{what} cannot be used: {why}.", hint) from None


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
