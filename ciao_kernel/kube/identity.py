"""The user of requests to an API server: token, certificate, and whom the user acts as."""

from __future__ import annotations

import base64
import logging
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ciao_kernel import log
from ciao_kernel.kube import exec_plugin, impersonation, oidc
from ciao_kernel.kube.kubeconfig import Entry

_log = logging.getLogger(__name__)

_AHEAD = 60.0
"""Seconds before the expiry of credentials at which new ones are fetched."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A user.

    Args:
        authorization: Value of the header Authorization, or "".
        token_file: File with a token, which takes precedence; it is replaced before it expires.
        certificate: Client certificate (PEM), or b"".
        key: Its key (PEM).
        acting_as: Headers of impersonation.
        due: Time to fetch new credentials (seconds since the epoch), before they expire.
    """

    authorization: str = field(default="", repr=False)
    token_file: Path | None = None
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    acting_as: tuple[tuple[str, str], ...] = ()
    due: float = math.inf

    def headers(self) -> Iterator[tuple[str, str]]:
        """Yield the headers of a request; a name may occur several times."""
        if authorization := self._authorization():
            yield "Authorization", authorization
        yield from self.acting_as

    def _authorization(self) -> str:
        if self.token_file:
            # The kubelet replaces the file. If that fails for a moment, the last token still works.
            with log.ignored(_log, "reading the token again", OSError, ValueError):
                return bearer(self.token_file.read_text()) or self.authorization
        return self.authorization


def bearer(token: str) -> str:
    """Return the header's value for a token; a token file may end in a line feed."""
    return f"Bearer {token}" if (token := token.strip()) else ""


async def of_user(user: Entry, cluster: Mapping[str, Any], *, encrypted: bool) -> Identity:
    """Return the identity of a kubeconfig's user, and run its plug-in if it has one.

    As in kubectl, a token, a password or a certificate in the kubeconfig takes precedence over a
    plug-in, which is not run then; and over a connection without encryption no credentials are
    sent.

    Args:
        user: The user.
        cluster: Description of the server for a plug-in.
        encrypted: Whether the server is reached by https.

    Raises:
        ClusterFault: The plug-in, or the server of an auth-provider, returned no credentials.
        ValueError: The user cannot be used; the message completes "the kubeconfig …".
        OSError: One of its files cannot be read.
    """
    acting_as = impersonation.headers(user.values)
    if not encrypted:
        return Identity(acting_as=acting_as)
    token_file = user.path("tokenFile")
    token = user.text("token") or (token_file.read_text() if token_file else "")
    authorization = bearer(token)
    if not authorization and (user.text("username") or user.text("password")):
        pair = f"{user.text('username')}:{user.text('password')}"
        authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
    certificate, key = user.content("client-certificate"), user.content("client-key")
    until = math.inf
    if plugin := user.values.get("exec"):
        if not authorization and not (certificate and key):
            answer = await exec_plugin.run(plugin, cluster, user.folder)
            authorization, until = bearer(answer.token), answer.until
            certificate, key = answer.certificate.encode(), answer.key.encode()
    elif (provider := user.values.get("auth-provider")) and not authorization:
        if provider.get("name") != "oidc":
            name = provider.get("name")
            raise ValueError(f"the auth-provider {name} is no longer supported; use a plug-in")
        token, until = await oidc.token(Entry(provider.get("config") or {}, user.folder))
        authorization = bearer(token)
    return Identity(authorization, token_file, certificate, key, acting_as, _due(until))


def _due(until: float) -> float:
    # Credentials that live for less than two minutes are used for half their lifetime.
    return until - min(_AHEAD, (until - time.time()) / 2)
