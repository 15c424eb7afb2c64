"""The proxy of a request, by the variables ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``.

One rule for API servers and for registries. Programs read ``NO_PROXY`` differently; this is the
union of curl's, requests' and Go's rules, so that an entry that works there works here too:
https://curl.se/docs/manpage.html#--noproxy, https://pkg.go.dev/golang.org/x/net/http/httpproxy.
"""

from __future__ import annotations

import ipaddress
import os
import re
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}
_SEPARATORS = re.compile(r"[\s,]+")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def proxy_of(url: str, *, general: bool = True) -> str:
    """Return the address of the environment's proxy for a URL, or "" for a direct connection.

    Args:
        url: An address with ``http://`` or ``https://``.
        general: Also use ``ALL_PROXY``, as curl does; kubectl ignores it.
    """
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return ""
    from urllib.request import getproxies_environment  # slow: it imports email and http

    variables = getproxies_environment()
    names = (urlsplit(url).scheme, "all") if general else (urlsplit(url).scheme,)
    found = next((variables[name] for name in names if variables.get(name)), "")
    if not found or is_direct(url, variables.get("no", "")):
        return ""
    return found if "://" in found else f"http://{found}"


def is_direct(url: str, entries: str) -> bool:
    """Return whether a URL is reached without a proxy.

    This machine itself always is: a proxy elsewhere cannot reach it.

    Args:
        url: The address of a request.
        entries: Value of ``NO_PROXY``: hosts (with their subdomains), IP addresses and networks,
            each host or address also with a port; ``*`` for all.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:  # not an address; the request itself will fail
        return False
    host = (parts.hostname or "").rstrip(".")
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_matches(one, host, address, port) for one in _SEPARATORS.split(entries.lower()))


def _matches(entry: str, host: str, address: _Address | None, port: int | None) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        try:
            # Host bits may be set, as in 10.0.0.1/8.
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, wanted = _split(entry)
    if wanted and wanted != str(port):
        return False
    if (number := _address(name)) is not None:
        return number == address
    name = name.removeprefix("*.").strip(".")
    return bool(name) and address is None and (host == name or host.endswith(f".{name}"))


def _split(entry: str) -> tuple[str, str]:
    """Return host and port of an entry; an IPv6 address needs brackets before a port."""
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        return host, rest.removeprefix(":")
    if entry.count(":") == 1:
        host, _, port = entry.partition(":")
        return host, port
    return entry, ""


def _address(text: str) -> _Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
