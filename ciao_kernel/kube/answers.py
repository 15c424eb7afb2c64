"""What an API server, or something in its place, answered: an object, a refusal, or a fault."""

from __future__ import annotations

import contextlib
import errno
import html
import json
import os
import re
import socket
import ssl
from typing import TYPE_CHECKING, Any

from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube.access import Access
from ciao_kernel.redaction import masked, origin

if TYPE_CHECKING:
    import aiohttp

Object = dict[str, Any]
"""A Kubernetes object, as JSON has it."""

_MOST = 256 * 1024 * 1024
"""Bytes of an answer that is an object: ten thousand pods are less than half."""
_NAME_WAIT = 3.0
"""Seconds for which a host whose name is unknown is asked again: a network may just come up."""
# What a webhook that is not up yet makes the API server answer: the operator's is away for some
# seconds after each start.
_PASSING_WORDS = ("failed calling webhook", "failed to call webhook", "etcdserver:")
_PASSING = frozenset({429, 502, 503, 504})
_NO_SUCH_CERTIFICATE = re.compile(r"(?i)alert[ _](\w* ?certificate|unknown[ _]ca|access[ _]denied)")
BETWEEN = "Is a proxy or a login page between here and the API server?"
"""A hint: what answered is no API server."""
_PASSWORD_WANTED = 407
_PROXY_PASSES = frozenset({408, 425, 429, *range(500, 600)})
"""What a proxy says where asking again may help; a wrong password, again and again, may lock."""


class Unclear(ValueError):
    """What came cannot be understood; its words are ours, and may be shown."""


async def body(answer: aiohttp.ClientResponse) -> bytes:
    """Read an answer to its end.

    Raises:
        ClusterFault: It has no end that is worth waiting for.
    """
    data = bytearray()
    async for piece in answer.content.iter_any():
        data += piece
        if len(data) > _MOST:
            raise ClusterFault(
                f"{answer.url.path} answered with more than {_MOST >> 20} MiB.", BETWEEN
            )
    return bytes(data)


def object_of(data: bytes, path: str) -> Object:
    """Read an object.

    Raises:
        ClusterFault: It is none.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ClusterFault(
            f"{path} answered with something that is no Kubernetes object: {_words(data)}",
            BETWEEN,
        )
    if isinstance(found := value.get("items"), list):
        value["items"] = [shaped(one) for one in found if isinstance(one, dict)]
    return shaped(value)


def shaped(item: Object) -> Object:
    """Give an object the shape that all objects have, where it has another; it is changed in place.

    Whoever reads names, labels and owners then need not ask what each of them is. An object of a
    real API server stays as it is.
    """
    meta = item["metadata"] = part(item, "metadata")
    for name in ("name", "namespace", "uid"):
        if not isinstance(meta.get(name), str):
            meta[name] = ""
    for name in ("labels", "annotations"):
        if name in meta:
            found = part(meta, name)
            meta[name] = {k: v for k, v in found.items() if isinstance(v, str)}
    if "ownerReferences" in meta:
        owners = meta["ownerReferences"]
        owners = owners if isinstance(owners, list) else []
        meta["ownerReferences"] = [one for one in owners if isinstance(one, dict)]
    for name in ("spec", "status"):
        if name in item:
            item[name] = part(item, name)
    return item


def part(item: Object, name: str) -> Object:
    """A part of an object that should be one itself; an empty one where it is not."""
    found = item.get(name)
    return found if isinstance(found, dict) else {}


def refused(code: int, text: str | bytes, path: str) -> Refused:
    """Make an error of an answer that is not 2xx; its text is a Status object, or HTML."""
    data = text.encode() if isinstance(text, str) else text
    message, reason = "", ""
    with contextlib.suppress(ValueError, RecursionError):
        status = json.loads(data)
        if isinstance(status, dict):
            message, reason = str(status.get("message") or ""), str(status.get("reason") or "")
    if not message:
        message = f"{path}: {_words(data)}" if data.strip() else f"{path}: no reason given"
    hint = BETWEEN if 300 <= code < 400 or is_page(data) else ""
    return Refused(message, hint, code=code, reason=reason)


def is_page(data: bytes) -> bool:
    """Whether an answer is a web page: the API server has none."""
    return data[:100].lstrip()[:1] == b"<"


def no_api(code: int, data: bytes, path: str, location: str = "") -> ClusterFault:
    """What answered is no API server: it shows a page, or sends one elsewhere.

    Args:
        code: The HTTP status.
        data: Of the answer.
        path: What was asked for.
        location: Where it sends one to, whose query may hold a secret.
    """
    if location:
        place = origin(location) or "another path"
        return ClusterFault(f"{path} answered with a way to {place} ({code}).", BETWEEN)
    return ClusterFault(f"{path} answered with a web page ({code}): {_words(data)}", BETWEEN)


def _words(data: bytes) -> str:
    """The first words of an answer, for a message: the title of a page."""
    text = data[:20_000].decode(errors="replace")
    if is_page(data):
        title = re.search(r"(?is)<title[^>]*>(.*?)</title", text)
        text = html.unescape(title[1] if title else re.sub(r"(?s)<[^>]*>", " ", text))
    return repr(" ".join(text.split())[:200])


def not_believed(refusal: Refused, access: Access) -> Refused:
    """The server believes neither what it was shown nor what was read anew."""
    return Refused(
        f"the cluster of {access.source} does not accept these credentials: {refusal.message}",
        "Sign in again as your cluster wants it, then run the cell again.",
        code=refusal.code,
        reason=refusal.reason,
    )


def passes(error: Refused) -> bool:
    """Whether a refusal passes by waiting."""
    return (
        error.code in _PASSING
        # Two wrote at the same time, as to a quota's count.
        or (error.reason == "Conflict" and not is_another(error))
        or (error.code == 500 and any(words in error.message for words in _PASSING_WORDS))
    )


def is_another(error: Refused) -> bool:
    """Whether what was to be deleted is gone, and something else has its name."""
    return error.code == 409 and "Precondition failed: UID" in error.message


def retry_after(answer: aiohttp.ClientResponse) -> float | None:
    """The seconds that a server wants to be left alone; ten at most."""
    text = answer.headers.get("Retry-After", "")
    return min(float(text), 10) if text.isascii() and text.isdigit() else None


def refuses_us(error: Exception, access: Access) -> bool:
    """Whether the server wants no certificate like ours: it may have ended, or been replaced."""
    # Since TLS 1.3 a server may say so when its first answer is read.
    return access.certified and any(
        isinstance(one, ssl.SSLError) and _NO_SUCH_CERTIFICATE.search(str(one))
        for one in (error, error.__cause__)
    )


def away(error: Exception, access: Access) -> tuple[ClusterFault, float]:
    """Say why nobody answered, and for how many seconds it is worth asking again."""
    import aiohttp

    place = f"the cluster of {access.source} ({masked(access.configuration.host)})"
    cause = _cause(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return ClusterFault(
            f"{place} is not trusted: {_untrusted(cause)}.",
            "Is the certificate-authority of the kubeconfig this cluster's? One that was made anew "
            "needs a new kubeconfig.",
        ), 0.0
    if isinstance(cause, ssl.SSLError) and ("ALERT" in str(cause) or "WRONG_VERS" in str(cause)):
        return ClusterFault(
            f"{place} does not speak TLS with us: {_tls(cause)}.",
            "Is it http:// and not https://, and are the certificates of the kubeconfig its own?",
        ), 0.0
    if isinstance(error, aiohttp.InvalidURL | ValueError):
        return ClusterFault(
            f"{place} cannot be asked: {type(error).__name__}.",
            "Look at the server, the proxy-url and the token in the kubeconfig: "
            "`kubectl config view`.",
        ), 0.0
    hint = "Is it up, and is the network? To run the cell on this machine: %backend=local."
    patience = _NAME_WAIT if isinstance(cause, socket.gaierror) else float("inf")
    if isinstance(error, aiohttp.ClientHttpProxyError | aiohttp.ClientProxyConnectionError):
        hint = "The proxy-url of the kubeconfig names the proxy, or else HTTPS_PROXY."
    if isinstance(error, aiohttp.ClientHttpProxyError):
        if error.status == _PASSWORD_WANTED:
            hint = (
                "Put them into the proxy-url of the kubeconfig, or into HTTPS_PROXY: "
                "http://USER:PASSWORD@HOST:PORT."
            )
        patience = float("inf") if error.status in _PROXY_PASSES else 0.0
    return ClusterFault(f"{place} does not answer: {why(error)}.", hint), patience


def why(error: Exception) -> str:
    """Why nobody answered, in words that may be shown.

    The client library's own words are not for that: they quote the addresses that it used, and
    that of a proxy holds a password.
    """
    import aiohttp

    cause = _cause(error)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        if error.status == _PASSWORD_WANTED:
            return "the proxy on the way wants a user and a password that it knows (407)"
        return f"the proxy on the way does not let us through ({_status(error)})"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the answer was {_status(error)}"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"the proxy on the way cannot be reached: {_of_system(cause)}"
    if isinstance(cause, OSError):
        return _of_system(cause)
    if isinstance(error, json.JSONDecodeError):
        return "what it sends is no JSON"
    if isinstance(error, ValueError) and not isinstance(error, Unclear):
        return type(error).__name__
    return _shown(str(error)) or type(error).__name__


def _of_system(error: Exception) -> str:
    """The words for what the operating system, or TLS, says of a connection."""
    code = getattr(error, "errno", None)
    if isinstance(error, socket.gaierror):
        return f"nobody knows that name: {error.strerror or error}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"it is not trusted: {_untrusted(error)}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {_tls(error)}"
    if code == errno.ECONNREFUSED:
        return "connection refused, nobody listens there"
    # asyncio has words of its own in the place of the system's: "Connect call failed".
    words = os.strerror(code) if isinstance(code, int) and code > 0 else str(error)
    place = getattr(error, "filename", None)
    return _shown(f"{words}: {place}" if place else words) or type(error).__name__


def _cause(error: Exception) -> Exception:
    """What the client library's error was made of."""
    found = getattr(error, "os_error", None) or getattr(error, "certificate_error", None)
    return found if isinstance(found, Exception) else error


def _untrusted(error: ssl.SSLCertVerificationError) -> str:
    words: str = getattr(error, "verify_message", "")
    return words or "its certificate is not valid"


def _tls(error: ssl.SSLError) -> str:
    # Only those that OpenSSL made have a reason.
    reason: str = getattr(error, "reason", "") or ""
    return reason.replace("_", " ").lower() or _shown(str(error)) or "no TLS"


def _status(error: aiohttp.ClientResponseError) -> str:
    return f"{error.status} {_shown(error.message)}".rstrip()


def _shown(text: str) -> str:
    """Words of others on one line, without the passwords in their addresses."""
    return " ".join(masked(text[:20_000]).split())[:300]
