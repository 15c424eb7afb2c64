"""The auth-provider oidc: an ID token that ends, and a server that gives the next one."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import math
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube import oidc
from ciao_kernel.kube.kubeconfig import Entry
from tests.helpers.certificates import make_certificate
from tests.integration.kube.test_responses import serving


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of this machine, and its key."""
    return make_certificate(tmp_path_factory.mktemp("pki"))


def jwt(**claims: Any) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"eyJhbGciOiJSUzI1NiJ9.{payload}.c2lnbmF0dXJl"


class Issuer:
    """An issuer of ID tokens; ``in_form`` wants the client's password in the form."""

    def __init__(self, in_form: bool = False, **answer: Any) -> None:
        self.in_form, self.answer = in_form, answer
        self.asked: list[dict[str, str]] = []
        self.valid = {"again"}
        self.discovery = ""
        """Where its discovery document is, if not at its usual place."""

    async def reply(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/realm/.well-known/openid-configuration":
            if self.discovery:
                raise web.HTTPFound(self.discovery)
            return web.json_response({"token_endpoint": f"https://{request.host}/token"})
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.asked.append(form)
        header = request.headers.get("Authorization", "")
        pair = base64.b64decode(header.removeprefix("Basic ")).decode()
        known = (
            form.get("client_id") == "cli" and form.get("client_secret") == "pass:w%"
            if self.in_form
            else pair == "cli:pass%3Aw%25"
        )
        if not known or form["refresh_token"] not in self.valid:
            return web.json_response({"error": "invalid_client"}, status=401)
        return web.json_response(self.answer)


@contextlib.asynccontextmanager
async def configured(
    issuer: Issuer, pki: Path, trusted: bool = True, **more: str
) -> AsyncIterator[Entry]:
    """Serve an issuer, and give the configuration of a kubeconfig for it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "crt", pki / "key")
    async with asyncio.timeout(60), serving(issuer.reply, ssl_context=context) as host:
        config = {
            "client-id": "cli",
            "client-secret": "pass:w%",
            "idp-issuer-url": f"{host}/realm/",
            "idp-certificate-authority": "crt" if trusted else "",
            **more,
        }
        yield Entry(config, pki)


def ask(issuer: Issuer, pki: Path, trusted: bool = True, **more: str) -> tuple[str, float]:
    async def main() -> tuple[str, float]:
        async with configured(issuer, pki, trusted, **more) as entry:
            return await oidc.token(entry)

    return asyncio.run(main())


NEXT = jwt(exp=int(time.time()) + 86_400)
ENDED = jwt(exp=1)


def test_a_token_that_is_valid_is_used(pki: Path) -> None:
    issuer = Issuer()
    assert ask(issuer, pki, **{"id-token": NEXT})[0] == NEXT
    assert not issuer.asked


@pytest.mark.stands_for("oldest")
@pytest.mark.parametrize("old", [ENDED, "", "nonsense"])
@pytest.mark.parametrize("in_form", [False, True])
def test_a_token_that_ended_is_exchanged(pki: Path, old: str, in_form: bool) -> None:
    issuer = Issuer(in_form, id_token=NEXT)
    found, until = ask(issuer, pki, **{"id-token": old, "refresh-token": "again"})
    assert found == NEXT
    assert until == pytest.approx(time.time() + 86_400, abs=7200)
    assert issuer.asked[-1]["grant_type"] == "refresh_token"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"id-token": ENDED}, "the token expired, and there is no refresh-token"),
        ({"refresh-token": "s3cret"}, "gave no ID token (401 invalid_client)"),
        ({"refresh-token": "again"}, "gave no ID token (200)"),
        ({"refresh-token": "again", "idp-issuer-url": "https://127.0.0.1:1"}, "ClientConnector"),
        ({"refresh-token": "again", "idp-issuer-url": ""}, "its issuer"),
    ],
)
def test_what_cannot_be_renewed_is_said(pki: Path, more: dict[str, str], said: str) -> None:
    with pytest.raises(ClusterFault) as caught:
        ask(Issuer(), pki, **more)
    assert "the ID token of the kubeconfig cannot be renewed" in caught.value.message
    assert said in caught.value.message
    assert "s3cret" not in caught.value.message
    assert "kubelogin" in caught.value.hint


def test_an_issuer_may_take_each_refresh_token_once(pki: Path) -> None:
    async def main() -> None:
        issuer = Issuer(id_token=NEXT, refresh_token="second")
        given = {"id-token": ENDED, "refresh-token": "again"}
        async with configured(issuer, pki, **given) as entry:
            for valid, following in (("again", "second"), ("second", "third"), ("third", "")):
                issuer.valid = {valid}
                issuer.answer = {"id_token": NEXT, "refresh_token": following}
                assert (await oidc.token(entry))[0] == NEXT
            # The user has signed in again with kubectl, so the token from before counts no more.
            issuer.valid, issuer.answer = {"again"}, {"id_token": NEXT, "refresh_token": "lost"}
            assert (await oidc.token(entry))[0] == NEXT
            issuer.answer = {"id_token": NEXT}
            assert (await oidc.token(entry))[0] == NEXT
            assert [one["refresh_token"] for one in issuer.asked][-2:] == ["lost", "again"]

    asyncio.run(main())


def test_no_secret_goes_where_an_issuer_leads_without_https(pki: Path) -> None:
    issuer = Issuer(id_token=NEXT)

    async def main() -> None:
        async def plain(request: web.Request) -> web.StreamResponse:
            return web.json_response({"token_endpoint": "https://127.0.0.1:1/token"})

        async with serving(plain) as host:
            issuer.discovery = f"{host}/x"
            await asyncio.to_thread(ask, issuer, pki, **{"refresh-token": "again"})

    with pytest.raises(ClusterFault, match="leads to an address without https"):
        asyncio.run(main())
    assert not issuer.asked


@pytest.mark.parametrize("more", [{}, {"refresh-token": "again"}])
def test_a_token_that_seems_to_have_ended_is_the_servers_to_judge(
    pki: Path, more: dict[str, str]
) -> None:
    """This machine's clock may be an hour ahead."""
    late = jwt(exp=int(time.time()) - 3000)
    found = ask(Issuer(id_token=late), pki, **{"id-token": late, **more})
    assert found == (late, math.inf)


@pytest.mark.stands_for("oldest")
def test_an_issuer_that_nobody_vouches_for_gets_no_secret(pki: Path) -> None:
    issuer = Issuer(id_token=NEXT)
    with pytest.raises(ClusterFault, match="ClientConnectorCertificateError"):
        ask(issuer, pki, trusted=False, **{"refresh-token": "again"})
    assert not issuer.asked
