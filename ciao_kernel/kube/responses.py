"""Answers of an API server, or of something in its place: an object, a refusal, or a fault."""

from __future__ import annotations

import contextlib
import html
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ciao_kernel import retry_after
from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube.access import Access
from ciao_kernel.kube.object_shape import Object, normalize, objects
from ciao_kernel.kube.webhooks import silent_webhook
from ciao_kernel.redaction import origin

if TYPE_CHECKING:
    from http.client import HTTPResponse

    import aiohttp

_MOST = 256 * 1024 * 1024
"""Largest answer, in bytes, that is read as an object; ten thousand pods take less than half."""
_LONGEST_PAUSE = 10.0
# Parts of the API server's answer while a webhook is not up yet; the operator's webhook is away
# for some seconds after each start.
_WEBHOOK_WORDS = ("failed calling webhook", "failed to call webhook")
_PASSING_WORDS = (*_WEBHOOK_WORDS, "etcdserver:")
# Parts of its answer while etcd, or its connection to it, starts again: errors of gRPC and of Go. A
# webhook may say the same, and mean it for good.
_BACKEND_WORDS = (
    "rpc error: code = Unavailable",
    "transport is closing",
    "http2: client connection",
    "connection refused",
)
_PASSING = frozenset({429, 502, 503, 504})
DENIED = 20.0
"""Seconds for which a request is repeated that is denied now, and was allowed before: a server that
has just started may lack roles until then."""
WEBHOOK_SILENT = "WebhookSilent"
"""Our reason for a refusal because a webhook does not answer; the server gives none of its own."""
PROXY_HINT = "Is a proxy or a login page between here and the API server?"
"""Hint: the answer did not come from an API server."""


class InvalidResponse(ValueError):
    """The answer cannot be understood. The text is ciao's own, and safe to show."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that was read to its end.

    Args:
        status: The HTTP status.
        headers: Its headers, whose names are found as this package writes them: ``Retry-After``.
        data: Its body.
    """

    status: int
    headers: Mapping[str, str]
    data: bytes


async def body(answer: aiohttp.ClientResponse) -> bytes:
    """Read an answer to its end.

    Raises:
        ClusterFault: It is too large.
    """
    data = bytearray()
    async for piece in answer.content.iter_any():
        data += piece
        if len(data) > _MOST:
            raise _too_large(answer.url.path)
    return bytes(data)


def read(answer: HTTPResponse, path: str) -> bytes:
    """Read an answer of ``http.client`` to its end; it may be compressed by gzip.

    Raises:
        ClusterFault: It is too large.
        OSError, http.client.HTTPException: It is incomplete or damaged.
    """
    data = answer.read(_MOST + 1)
    if answer.length and len(data) <= _MOST:  # what a read with a limit does not report
        raise ConnectionError("the answer is cut off")
    if answer.getheader("Content-Encoding", "").lower() == "gzip":
        unpack = zlib.decompressobj(wbits=31)
        try:
            data = unpack.decompress(data, _MOST + 1)
        except zlib.error:
            raise ConnectionError("the answer is not gzip, as it says") from None
        if not unpack.eof and len(data) <= _MOST:
            raise ConnectionError("the answer is cut off")
    if len(data) > _MOST:
        raise _too_large(path)
    return data


def _too_large(path: str) -> ClusterFault:
    return ClusterFault(f"{path} answered with more than {_MOST >> 20} MiB.", PROXY_HINT)


def object_of(data: bytes, path: str) -> Object:
    """Decode an object.

    Raises:
        ClusterFault: The data is not a Kubernetes object.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ClusterFault(
            f"{path} did not return a Kubernetes object: {_words(data)}",
            PROXY_HINT,
        )
    if isinstance(found := value.get("items"), list):
        value["items"] = [normalize(one) for one in objects(found)]
    return normalize(value)


def refused(code: int, text: str | bytes, path: str) -> Refused:
    """Return the error for an answer that is not 2xx; its text is a Status object, or HTML."""
    data = text.encode() if isinstance(text, str) else text
    message, reason = "", ""
    with contextlib.suppress(ValueError, RecursionError):
        status = json.loads(data)
        if isinstance(status, dict):
            message, reason = str(status.get("message") or ""), str(status.get("reason") or "")
    if not message:
        message = f"{path}: {_words(data)}" if data.strip() else f"{path}: no reason given"
    if code == 500 and (told := silent_webhook(message)):
        return Refused(*told, code=code, reason=WEBHOOK_SILENT)
    hint = PROXY_HINT if 300 <= code < 400 or is_page(data) else ""
    return Refused(message, hint, code=code, reason=reason)


def is_page(data: bytes) -> bool:
    """Return whether an answer is a web page, which an API server never sends."""
    return data[:100].lstrip()[:1] == b"<"


def not_an_api_server(code: int, data: bytes, path: str, location: str = "") -> ClusterFault:
    """Return the error for an answer that is a web page or a redirect, not from an API server.

    Args:
        code: The HTTP status.
        data: Body of the answer.
        path: Path of the request.
        location: Target of the redirect; its query may contain a secret.
    """
    if location:
        place = origin(location) or "another path"
        return ClusterFault(f"{path} redirects to {place} ({code}).", PROXY_HINT)
    return ClusterFault(f"{path} answered with a web page ({code}): {_words(data)}", PROXY_HINT)


def _words(data: bytes) -> str:
    """Return the first words of an answer, for a message; of a web page, its title."""
    text = data[:20_000].decode(errors="replace")
    if is_page(data):
        title = re.search(r"(?i)<title[^<>]*>([^<]*)", text)
        text = html.unescape(title[1] if title else re.sub(r"<[^<>]*>", " ", text))
    return repr(" ".join(text.split())[:200])


def credentials_rejected(
    refusal: Refused, access: Access, renewal: ClusterFault | None = None
) -> Refused:
    """Return the error if the server accepts neither the old nor the reloaded credentials.

    Args:
        refusal: The server's last refusal.
        access: The refused credentials.
        renewal: Why they could not be renewed, if that failed.
    """
    reason = renewal or refusal
    return Refused(
        f"the cluster of {access.source} does not accept these credentials: {reason.message}",
        "Sign in to the cluster again, then try again.",
        code=refusal.code,
        reason=refusal.reason,
        signed_out=True,
    )


def passes(error: Refused) -> bool:
    """Return whether a refusal is temporary, so that a retry may succeed."""
    return (
        error.code in _PASSING
        # Two clients wrote at the same time, for example to a quota's count.
        or (error.reason == "Conflict" and not is_uid_conflict(error))
        or error.reason == WEBHOOK_SILENT
        or (error.code == 500 and any(words in error.message for words in _PASSING_WORDS))
        or _is_of_backend(error)
    )


def _is_of_backend(error: Refused) -> bool:
    """Return whether the server refuses because it has lost its connection to etcd for now."""
    own = error.code == 500 and "webhook" not in error.message
    return own and any(words in error.message for words in _BACKEND_WORDS)


def is_of_webhook(error: Refused) -> bool:
    """Return whether the server refuses because it cannot call a webhook."""
    said = any(words in error.message for words in _WEBHOOK_WORDS)
    return error.reason == WEBHOOK_SILENT or (error.code == 500 and said)


def allows_no_trial(error: Refused) -> bool:
    """Return whether a webhook with side effects would have to be called for a dry run.

    Only a dry run is refused so, whatever the object is (Kubernetes,
    apiserver/pkg/admission/plugin/webhook/errors).
    """
    return "does not support dry run" in error.message


def is_uid_conflict(error: Refused) -> bool:
    """Return whether the object to delete is gone, and another object has its name."""
    return error.code == 409 and "Precondition failed: UID" in error.message


def pause(answer: Answer) -> float | None:
    """Return the server's Retry-After in seconds, at most ten; None if it has none."""
    pause = retry_after.seconds(answer.headers)
    return None if pause is None else min(pause, _LONGEST_PAUSE)
