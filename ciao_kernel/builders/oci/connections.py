"""Connections to registries: whom they trust, and through which proxy they go."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ciao_kernel.errors import RegistryFault

if TYPE_CHECKING:
    import requests

_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables that name further authorities; Python itself reads SSL_CERT_FILE."""
_PIECE = 64 << 10
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def session(plain: bool, authority: Path | None) -> requests.Session:
    """Open a session that knows nothing of the environment but the authorities that it names.

    Args:
        plain: No certificates are needed.
        authority: Trusted beside those of the system and of certifi.

    Raises:
        RegistryFault: The authority's file cannot be used.
    """
    import requests

    class Session(requests.Session):
        def get_redirect_target(self, resp: requests.Response) -> str | None:
            return None  # the callers follow; requests would read a hostile answer whole

    made = Session()
    # Else ~/.netrc would win over our credentials, and REQUESTS_CA_BUNDLE over our authority.
    made.trust_env = False
    made.headers["User-Agent"] = "ciao"
    # A proxy that packs a layer once more would break its length and its digest.
    made.headers["Accept-Encoding"] = "identity"
    if authority or not plain:
        made.mount("https://", _adapter(_trust(authority)))
    return made


def proxies(url: str) -> dict[str, str]:
    """Return the proxies of the environment for an address; none where NO_PROXY names it."""
    import requests

    if not any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES):
        return {}  # a millisecond in each cell that is built
    return requests.utils.get_environ_proxies(url)


def read(answer: requests.Response, limit: int, into: bytearray) -> None:
    """Read an answer, which may have no end; a byte more than the limit tells that it has more.

    Args:
        answer: It was asked for as a stream, and is closed behind this.
        limit: Bytes.
        into: Gets them, also where it breaks off.

    Raises:
        requests.RequestException: It broke off.
        OSError: The same.
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
        except (OSError, ValueError) as error:  # ssl's own errors are OSErrors, too
            why = "it holds no certificate" if isinstance(error, ssl.SSLError) else _words(error)
            raise RegistryFault(
                f"the registry authority {authority} cannot be used: {why}.",
                "`%ciao config registryAuthority=FILE` names a file of certificates (PEM).",
            ) from None
    return context


def _words(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


def _adapter(context: ssl.SSLContext) -> requests.adapters.HTTPAdapter:
    """Return what makes connections of one context: reading authorities takes some 30 ms."""
    import requests

    class Adapter(requests.adapters.HTTPAdapter):
        def init_poolmanager(self, *args: Any, **more: Any) -> None:
            super().init_poolmanager(*args, ssl_context=context, **more)

        def proxy_manager_for(self, proxy: Any, **more: Any) -> Any:
            return super().proxy_manager_for(proxy, ssl_context=context, **more)

        def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
            conn.cert_reqs = "CERT_REQUIRED"  # by the context's authorities, and no others

    return Adapter()
