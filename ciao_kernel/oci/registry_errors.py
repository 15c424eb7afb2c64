"""Errors for a registry that refuses or does not answer: one sentence and one hint each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ciao_kernel import retry_after
from ciao_kernel.errors import RegistryFault, RegistryUnreachable

BROKEN = frozenset({500, 502, 503, 504})
_FULL = re.compile(
    r"no space left|insufficient storage|disk quota|quota exceeded|exceed the configured upper",
    re.IGNORECASE,
)
_READ_ONLY = re.compile(r"read.?only", re.IGNORECASE)
_CUT = re.compile(r"reset by peer|aborted|Broken pipe|closed connection|EOF occurred")
_EXPIRED = re.compile(r"(?:token|credentials?|login) (?:has|have|is|are) expired|Reauthenticate")
"""Parts of a refusal of a login that has ended. Amazon ECR answers with 403 then, as it does
where a right is missing."""
_PASSING = ("BLOB_UPLOAD", "MANIFEST_BLOB_UNKNOWN")
"""A broken upload; a blob that was removed since the last check."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that was read.

    Args:
        code: The HTTP status.
        headers: Headers, with case-insensitive names.
        body: Body of the answer, up to the limit for reading.
        url: Address of the answer, after all redirects.
    """

    code: int
    headers: Mapping[str, str]
    body: bytes
    url: str


@dataclass(frozen=True, slots=True)
class Requester:
    """The sender of a request, for messages.

    Args:
        registry: Name of the registry, as the user writes it.
        user: Name of the user; "" means anonymous.
        plain: The request uses http.
        hidden_secret: Secret that the cell names, but that the login of this machine comes before;
            "" if there is none.
    """

    registry: str
    user: str = ""
    plain: bool = False
    hidden_secret: str = ""

    @property
    def login(self) -> str:
        """Return the hint for authentication."""
        if self.hidden_secret:
            return (
                f"`docker logout {self.registry}` on this machine: its login comes before the "
                f"Secret {self.hidden_secret}. Or renew it: `docker login {self.registry}`."
            )
        return (
            f"`docker login {self.registry}` on this machine; or name a Secret that has the "
            "password: %pushSecret=…."
        )


def pause(headers: Mapping[str, str], wait: float) -> float:
    """Return the seconds to wait before a retry.

    Args:
        headers: Headers of a busy server's answer.
        wait: Seconds if there is no valid ``Retry-After``, or one of zero seconds.
    """
    return retry_after.seconds(headers) or wait


def later(headers: Mapping[str, str]) -> str:
    """Return the hint after too many requests."""
    wait = pause(headers, 0)
    when = (
        "some minutes" if not wait else f"{wait:.0f} s" if wait <= 120 else f"{wait / 60:.0f} min"
    )
    return f"Try again in {when}; registries allow more requests after a login."


def parsed(raw: bytes) -> Any:
    """Parse JSON; None if it is not valid."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def unreachable(error: Exception, asker: Requester) -> RegistryFault:
    """Return the error for a failed connection."""
    import requests

    text, host = str(error), asker.registry
    if "CERTIFICATE_VERIFY_FAILED" in text:
        found = re.search(r"certificate verify failed: ([\w '.:-]+)", text)
        why = found[1].strip() if found else ""
        own = "mismatch" in why or "expired" in why
        return RegistryFault(
            f"the certificate of the registry {host} is not trusted here: {why or 'no reason'}.",
            "Ask its administrator; is the name the one in the certificate?"
            if own
            else "Name the file of its authority: `%ciao config registryAuthority=FILE`.",
        )
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text:
        return RegistryFault(
            f"the registry {host} speaks http, not https.",
            f"If that is intended: `%ciao config plainRegistries+={host}`.",
        )
    if "ame or service not known" in text or re.search("name ?resolution", text, re.IGNORECASE):
        return RegistryUnreachable(
            f"the name of the registry {host} cannot be resolved here.",
            "Is it right? Both this machine and the nodes must be able to resolve it.",
        )
    if isinstance(error, requests.exceptions.ProxyError):
        return RegistryUnreachable(
            f"the registry {host} cannot be reached through the proxy.",
            "HTTPS_PROXY and HTTP_PROXY name the proxy; NO_PROXY lists hosts to reach without it.",
        )
    if isinstance(error, requests.Timeout):
        why_not = "no answer" if isinstance(error, requests.ConnectTimeout) else "it sent no data"
        return RegistryUnreachable(
            f"the registry {host} does not answer: {why_not}.",
            "Is it up, and can this machine reach it?",
        )
    why = f"the connection failed with {type(error).__name__}"
    if "Connection refused" in text:
        why = "nothing listens there"
    elif _CUT.search(text):
        why = "it closed the connection"
    return RegistryUnreachable(
        f"the registry {host} does not answer: {why}.",
        "Is it up, and can this machine reach it?",
        # Other errors are permanent, for example an invalid address.
        passing=isinstance(
            error, requests.ConnectionError | requests.exceptions.ChunkedEncodingError
        ),
    )


def refusal(answer: Answer, asker: Requester, what: str, own_message: str) -> RegistryFault:
    """Return the error for a refusal.

    Args:
        answer: The answer.
        asker: The sender of the request.
        what: The action, such as "push to host/team/model"; "" omits it.
        own_message: The registry's own message.
    """
    code, host, own_message = answer.code, asker.registry, own_message.rstrip(". ")
    doing = f" ({what})" if what else ""
    detail = f": {own_message}" if own_message else ""
    if code == 507 or _FULL.search(own_message):
        hint = "Ask its administrator for space, or name another registry: %registry=…."
        return RegistryFault(f"the registry {host} is full{doing}{detail}.", hint, code=code)
    if code == 405 or _READ_ONLY.search(own_message):
        hint = "Name another registry: %registry=…."
        return RegistryFault(f"the registry {host} is read-only{doing}{detail}.", hint, code=code)
    if code in (401, 403):
        return _forbidden(answer, asker, what, own_message)
    if code == 404 and "NAME_UNKNOWN" in own_message:
        hint = "Is the name right? Some registries require a repository or project first."
        return RegistryFault(f"the registry {host} has no such repository{doing}.", hint, code=code)
    if code == 413:
        hint = "The limit is set by its administrator, or in a proxy before it."
        return RegistryFault(
            f"the upload is too large for the registry {host}{doing}.", hint, code=code
        )
    if code == 429:
        return RegistryFault(
            f"the registry {host} gets too many requests{doing}{detail}.",
            later(answer.headers),
            code=code,
        )
    if code == 400 and asker.plain and (b"HTTPS" in answer.body or not answer.body):
        hint = "Remove it from the setting plainRegistries."
        return RegistryFault(f"the registry {host} speaks https, not http.", hint, code=code)
    if code < 400:
        return RegistryFault(
            f"{host} does not answer like a registry{doing}: the status is {code}.",
            "Is the host right, or is a proxy's login page in between?",
            code=code,
        )
    return RegistryFault(
        f"the registry {host} answered {code}{doing}{detail or ' without a reason'}.",
        "It may be broken; ask its administrator."
        if code >= 500
        else "Does it accept the repository's name? Ask its administrator.",
        code=code,
        passing=code in BROKEN or own_message.startswith(_PASSING),
    )


def _forbidden(answer: Answer, asker: Requester, what: str, own_message: str) -> RegistryFault:
    challenge = answer.headers.get("WWW-Authenticate", "")
    expired = _EXPIRED.search(own_message)
    known = not expired and (answer.code == 403 or "insufficient_scope" in challenge)
    doing = f" ({what})" if what else ""
    if not asker.user:
        return RegistryFault(
            f"the registry {asker.registry} requires authentication{doing}"
            + (f": {own_message}." if own_message and answer.code == 403 else "."),
            asker.login,
            code=answer.code,
        )
    if known:
        more = (
            f": {own_message}" if own_message and not own_message.startswith("UNAUTHORIZED") else ""
        )
        return RegistryFault(
            f"{asker.user} has no right to {what or f'do that on {asker.registry}'}{more}.",
            "Ask for that right, or name another repository: %registry=….",
            code=answer.code,
        )
    return RegistryFault(
        f"the registry {asker.registry} does not accept the credentials of {asker.user}{doing}"
        + (f": {own_message}." if expired else "."),
        asker.login,
        code=answer.code,
    )


def words(answer: Answer) -> str:
    """Return the first error of an answer: ``DENIED: requested access is denied``."""
    body = parsed(answer.body)
    errors = body.get("errors") if isinstance(body, dict) else None
    one = errors[0] if isinstance(errors, list) and errors else None
    if not isinstance(one, dict):
        return ""
    parts = [str(one.get(key) or "") for key in ("code", "message")]
    found = ": ".join(part for part in parts if part)
    return shown(found)


def shown(text: str) -> str:
    """Return foreign text for a message: shortened, without line ends and control characters."""
    return "".join(c if c.isprintable() else " " for c in text[:300]).strip()
