"""What a registry that says no, or nothing, is called in an error: one sentence, one hint."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ciao_kernel.errors import RegistryFault

BROKEN = frozenset({500, 502, 503, 504})
_FULL = re.compile(
    r"no space left|insufficient storage|disk quota|quota exceeded|exceed the configured upper",
    re.IGNORECASE,
)
_READ_ONLY = re.compile(r"read.?only", re.IGNORECASE)
_CUT = re.compile(r"reset by peer|aborted|Broken pipe|closed connection|EOF occurred")
_PASSING = ("BLOB_UPLOAD", "MANIFEST_BLOB_UNKNOWN")
"""An upload that was cut; a blob that was removed since it was last seen."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that has been read.

    Args:
        code: The HTTP status.
        headers: In any case.
        body: At most as much as was asked for.
        url: Who gave it, after all redirects.
    """

    code: int
    headers: Mapping[str, str]
    body: bytes
    url: str


@dataclass(frozen=True, slots=True)
class Asker:
    """Whom a registry deals with, for messages.

    Args:
        registry: As people write it.
        user: Who asks; "" asks as nobody.
        plain: By http.
    """

    registry: str
    user: str = ""
    plain: bool = False

    @property
    def login(self) -> str:
        """What would tell who asks."""
        return (
            f"`docker login {self.registry}` on this machine; or name a Secret that has the "
            "password: %pushSecret=…."
        )


def pause(headers: Mapping[str, str], wait: float) -> float:
    """Seconds after which one who is busy says that he may be asked again.

    Args:
        headers: Of his answer.
        wait: What they are where it says nothing.
    """
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 9 else wait


def later(headers: Mapping[str, str]) -> str:
    """The hint where somebody is asked too often."""
    wait = pause(headers, 0)
    when = (
        "some minutes" if not wait else f"{wait:.0f} s" if wait <= 120 else f"{wait / 60:.0f} min"
    )
    return f"Try again in {when}; registries let those ask more who have signed in."


def parsed(raw: bytes) -> Any:
    """Read JSON; None where it is none."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def unreachable(error: Exception, asker: Asker) -> RegistryFault:
    """The error of a connection that failed."""
    import requests

    text, host = str(error), asker.registry
    if "CERTIFICATE_VERIFY_FAILED" in text:
        found = re.search(r"certificate verify failed: ([\w '.:-]+)", text)
        why = found[1].strip() if found else ""
        own = "mismatch" in why or "expired" in why
        return RegistryFault(
            f"the certificate of the registry {host} is not trusted here: {why or 'no reason'}.",
            "It is a matter of its administrator; is the name the one in the certificate?"
            if own
            else "Name the file of its authority: `%ciao config registryAuthority=FILE`.",
        )
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text:
        return RegistryFault(
            f"the registry {host} speaks http, not https.",
            f"If that is meant to be: `%ciao config plainRegistries={host}`.",
        )
    if "ame or service not known" in text or re.search("name ?resolution", text, re.IGNORECASE):
        return RegistryFault(
            f"the name of the registry {host} is not known here.",
            "Is it right? Notebook and nodes must both know it.",
        )
    if isinstance(error, requests.exceptions.ProxyError):
        return RegistryFault(
            f"the proxy on the way to the registry {host} does not let us through.",
            "HTTPS_PROXY and HTTP_PROXY name it; NO_PROXY names what is reached without it.",
        )
    if isinstance(error, requests.Timeout):
        why_not = "no answer" if isinstance(error, requests.ConnectTimeout) else "it fell silent"
        return RegistryFault(
            f"the registry {host} does not answer: {why_not}.",
            "Is it up, and can this machine reach it?",
        )
    why = f"{type(error).__name__} on the way"
    if "Connection refused" in text:
        why = "nothing listens there"
    elif _CUT.search(text):
        why = "it broke the connection off"
    return RegistryFault(
        f"the registry {host} does not answer: {why}.",
        "Is it up, and can this machine reach it?",
        # What is none of these is wrong for good, such as an address that is none.
        passing=isinstance(
            error, requests.ConnectionError | requests.exceptions.ChunkedEncodingError
        ),
    )


def refusal(answer: Answer, asker: Asker, what: str, said: str) -> RegistryFault:
    """The error of an answer that says no.

    Args:
        answer: The whole of it.
        asker: Who got it.
        what: Was being done: "push to host/team/model"; "" leaves it out.
        said: The registry's own words.
    """
    code, host, said = answer.code, asker.registry, said.rstrip(". ")
    doing = f" ({what})" if what else ""
    told = f": {said}" if said else ""
    if code == 507 or _FULL.search(said):
        hint = "Ask who runs it for room, or name another: %registry=…."
        return RegistryFault(f"the registry {host} is full{doing}{told}.", hint, code=code)
    if code == 405 or _READ_ONLY.search(said):
        hint = "Name another registry: %registry=…."
        return RegistryFault(f"the registry {host} is read-only{doing}{told}.", hint, code=code)
    if code in (401, 403):
        return _forbidden(answer, asker, what, said)
    if code == 404 and "NAME_UNKNOWN" in said:
        hint = "Is the name right? Some registries want a repository or project made first."
        return RegistryFault(f"the registry {host} has no such repository{doing}.", hint, code=code)
    if code == 413:
        hint = "Its administrator, or that of the proxy before it, sets the limit."
        return RegistryFault(f"the registry {host} takes nothing so large{doing}.", hint, code=code)
    if code == 429:
        return RegistryFault(
            f"the registry {host} is asked too often{doing}{told}.",
            later(answer.headers),
            code=code,
        )
    if code == 400 and asker.plain and (b"HTTPS" in answer.body or not answer.body):
        hint = "Take it out of the setting plainRegistries."
        return RegistryFault(f"the registry {host} speaks https, not http.", hint, code=code)
    if code < 400:
        return RegistryFault(
            f"{host} does not answer as a registry does{doing}: it said {code}.",
            "Is the host right, or is a proxy's login page in between?",
            code=code,
        )
    return RegistryFault(
        f"the registry {host} said {code}{doing}{told or ' and gave no reason'}.",
        "It may be broken; its administrator knows more."
        if code >= 500
        else "Is the repository's name one that it takes? Its administrator knows more.",
        code=code,
        passing=code in BROKEN or said.startswith(_PASSING),
    )


def _forbidden(answer: Answer, asker: Asker, what: str, said: str) -> RegistryFault:
    challenge = answer.headers.get("WWW-Authenticate", "")
    known = answer.code == 403 or "insufficient_scope" in challenge
    doing = f" ({what})" if what else ""
    if not asker.user:
        return RegistryFault(
            f"the registry {asker.registry} asks who you are{doing}"
            + (f": {said}." if said and answer.code == 403 else "."),
            asker.login,
            code=answer.code,
        )
    if known:
        more = f": {said}" if said and not said.startswith("UNAUTHORIZED") else ""
        return RegistryFault(
            f"{asker.user} has no right to {what or f'do that on {asker.registry}'}{more}.",
            "Ask for that right, or name another repository: %registry=….",
            code=answer.code,
        )
    return RegistryFault(
        f"the registry {asker.registry} does not accept the credentials of {asker.user}{doing}.",
        asker.login,
        code=answer.code,
    )


def words(answer: Answer) -> str:
    """The first error of an answer: ``DENIED: requested access is denied``."""
    body = parsed(answer.body)
    errors = body.get("errors") if isinstance(body, dict) else None
    one = errors[0] if isinstance(errors, list) and errors else None
    if not isinstance(one, dict):
        return ""
    parts = [str(one.get(key) or "") for key in ("code", "message")]
    found = ": ".join(part for part in parts if part)
    return shown(found)


def shown(text: str) -> str:
    """What may stand in a message of what a stranger sent: no line ends, no colours."""
    return "".join(c if c.isprintable() else " " for c in text[:300]).strip()
