"""Requests to one registry: authorised, and each refusal one clear sentence.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci.auth import Authorizer, Scopes
from ciao_kernel.oci.credentials import Credentials

if TYPE_CHECKING:
    import requests

_TIMEOUT = (5.0, 60.0)
"""Seconds to connect, and between two pieces of an answer."""
_BUSY = frozenset({429, 500, 502, 503, 504})
_LONGEST_WAIT = 10.0


class Registry:
    """One registry, with its connections and tokens kept open for the next cell.

    Args:
        host: Host and port that answer.
        credentials: Who asks; None asks as nobody.
        plain: It speaks http: only where the user's settings name it.
        authority: File of the certificate that signs its own; None trusts what the system does.
        patience: Seconds for which a registry that is busy is asked again.
    """

    def __init__(
        self,
        host: str,
        credentials: Credentials | None = None,
        *,
        plain: bool = False,
        authority: Path | None = None,
        patience: float = 15.0,
    ) -> None:
        import requests

        self.host = host
        self.requests = 0
        """How many requests were sent."""
        self.sent = 0
        """Bytes of bodies that were sent."""
        self._plain = plain
        self._patience = patience
        self._url = f"{'http' if plain else 'https'}://{host}"
        self._session = requests.Session()
        # Else REQUESTS_CA_BUNDLE would win over our authority, and ~/.netrc over our credentials.
        self._session.trust_env = False
        self._session.proxies.update(requests.utils.get_environ_proxies(self._url))
        self._session.headers["User-Agent"] = "ciao"
        if authority:
            self._session.verify = str(authority)
        self._authorizer = Authorizer(host, credentials, self._session)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def call(
        self,
        method: str,
        place: str,
        scopes: Scopes,
        *,
        accept: Collection[int] = (200,),
        headers: Mapping[str, str] | None = None,
        data: Any = None,
        size: int = 0,
        stream: bool = False,
        what: str = "",
    ) -> requests.Response:
        """Send a request and return its answer.

        Args:
            method: Of HTTP.
            place: A path below ``/v2/``, or the whole address of an upload.
            scopes: What it is for.
            accept: The codes that are no error.
            headers: Further ones.
            data: The body: bytes, or an open file that is not read twice.
            size: Bytes of the body, for the count.
            stream: Leave the answer's body to the caller.
            what: What is being done, for messages: "push to host/team/model".

        Raises:
            RegistryFault: It cannot be reached, or says no.
        """
        url = urljoin(f"{self._url}/v2/", place)
        own = urlsplit(url).netloc == self.host
        until = time.monotonic() + self._patience
        asked, wait = False, 0.2
        while True:
            answer = self._send(method, url, scopes if own else None, headers, data, stream)
            self.sent += size
            challenge = answer.headers.get("WWW-Authenticate", "")
            if answer.status_code == 401 and own and not asked:
                asked = True
                if self._authorizer.answer(challenge, scopes, self._plain) and _again(data):
                    answer.close()
                    continue
            if answer.status_code in accept:
                return answer
            if answer.status_code in _BUSY and _again(data) and time.monotonic() + wait < until:
                answer.close()
                time.sleep(_after(answer, wait))
                wait = min(_LONGEST_WAIT, wait * 2)
                continue
            raise refusal(answer, self.host, what)

    def _send(
        self,
        method: str,
        url: str,
        scopes: Scopes | None,
        headers: Mapping[str, str] | None,
        data: Any,
        stream: bool,
    ) -> requests.Response:
        import requests

        known = self._authorizer.header(scopes) if scopes is not None else {}
        self.requests += 1
        try:
            return self._session.request(
                method,
                url,
                headers={**(headers or {}), **known},
                data=data,
                stream=stream,
                timeout=_TIMEOUT,
            )
        except (requests.RequestException, OSError) as error:
            raise unreachable(error, self.host) from None


def _again(data: Any) -> bool:
    """Whether a body can be sent a second time: a file's end may be reached."""
    return data is None or isinstance(data, bytes)


def _after(answer: requests.Response, wait: float) -> float:
    text = answer.headers.get("Retry-After", "")
    return min(float(text), _LONGEST_WAIT) if text.isdigit() else wait


def unreachable(error: Exception, host: str) -> RegistryFault:
    """The error of a connection that failed."""
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return RegistryFault(
            f"the certificate of the registry {host} is not trusted here.",
            "Name the file of its authority: `%ciao config registryAuthority=FILE`.",
        )
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text:
        return RegistryFault(
            f"the registry {host} speaks http, not https.",
            f"If that is meant to be: `%ciao config plainRegistries={host}`.",
        )
    if "Name or service not known" in text or "NameResolution" in text:
        return RegistryFault(
            f"there is no host {host.partition(':')[0]}: no such name.",
            "Is the name of the registry right? Notebook and nodes must both know it.",
        )
    kind = type(error).__name__
    why = "nothing listens there" if "Connection refused" in text else f"{kind} on the way"
    return RegistryFault(
        f"the registry {host} does not answer: {why}.",
        "Is it up, and can this machine reach it?",
        passing=True,
    )


def refusal(answer: requests.Response, host: str, what: str) -> RegistryFault:
    """The error of an answer that says no, in words that help."""
    code = answer.status_code
    said = _words(answer)
    doing = f" ({what})" if what else ""
    if code == 401:
        return RegistryFault(
            f"the registry {host} asks who you are{doing}: {said or 'no or wrong credentials'}.",
            f"`docker login {host}` on this machine, or a Secret of the namespace: %pushSecret=….",
            code=code,
        )
    if code == 403:
        hint = "Ask for the right to it, or name another repository: %registry=…."
        return RegistryFault(f"the registry {host} says no{doing}: {said or 403}.", hint, code=code)
    if code == 405:
        hint = "Name another registry: %registry=…."
        return RegistryFault(f"the registry {host} is read-only{doing}.", hint, code=code)
    if code == 413:
        hint = "Its administrator, or that of the proxy before it, sets the limit."
        return RegistryFault(f"the registry {host} takes nothing so large{doing}.", hint, code=code)
    return RegistryFault(
        f"the registry {host} said {code}{doing}: {said or 'and no reason'}.",
        "It may be full or broken; its administrator knows more." if code >= 500 else "",
        code=code,
        # An upload that was cut; a blob that was removed since it was last seen.
        passing=code in _BUSY or said.startswith(("BLOB_UPLOAD", "MANIFEST_BLOB_UNKNOWN")),
    )


def _words(answer: requests.Response) -> str:
    """The first error of the answer: ``DENIED: requested access is denied``."""
    try:
        one = answer.json()["errors"][0]
        parts = [str(one.get(key) or "") for key in ("code", "message")]
        return ": ".join(part for part in parts if part)[:300]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return ""
