"""What answers is not always an API server: no answer makes ciao trip or hang."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import re
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ciao_kernel.backends.kubernetes import rights
from ciao_kernel.backends.kubernetes.cluster import checks
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.backends.kubernetes.submission import quotas
from ciao_kernel.errors import CiaoError, ClusterFault, Refused
from ciao_kernel.kube import access as access_module
from ciao_kernel.kube import connection_faults, responses
from ciao_kernel.kube.access import Access
from ciao_kernel.kube.client import Client
from ciao_kernel.kube.exec import execute
from ciao_kernel.kube.identity import Identity, bearer
from ciao_kernel.kube.log_request import LogRequest
from ciao_kernel.kube.replay import Replay
from ciao_kernel.kube.resume_position import ResumePosition
from ciao_kernel.kube.server import Server
from ciao_kernel.kube.watch import WatchedList
from ciao_kernel.model.queries import Streams
from ciao_kernel.plugins import JobManifest

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def serving(handler: Handler, **tls: Any) -> AsyncIterator[str]:
    """A server on the loopback that answers every request with a handler."""
    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, **tls)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


def access(host: str, token: str = "", who: Identity | None = None, **server: Any) -> Access:
    who = who or Identity(bearer(token))
    return Access(Server(host, **server), who, "team", "context test", "test")


@contextlib.asynccontextmanager
async def client(handler: Handler, patience: float = 0.2, **tls: Any) -> AsyncIterator[Client]:
    async with serving(handler, **tls) as host:

        async def again(context: str) -> Access:
            return access(host, "new")

        async with Client(access(host, "old"), patience, again) as made:
            yield made


def answering(
    *found: tuple[int, Any] | tuple[int, Any, dict[str, str]],
) -> tuple[Handler, list[str]]:
    """A handler that gives these answers one after the other, the last again and again."""
    asked: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(f"{request.method} {request.path}")
        code, body, *headers = found[min(len(asked), len(found)) - 1]
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return web.Response(status=code, body=data, headers=headers[0] if headers else None)

    return handler, asked


def ask(handler: Handler, work: Callable[[Client], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(100), client(handler, **options) as made:
            return await work(made)

    return asyncio.run(main())


def status(code: int, reason: str, message: str = "because") -> dict[str, Any]:
    return {"kind": "Status", "code": code, "reason": reason, "message": message}


PAGE = b"<!DOCTYPE html><html><head><title>Sign in &amp; go on</title></head><body>x</body></html>"
META = {"name": "a", "namespace": "team", "uid": "1", "annotations": {"run": "r1"}}
ITEM = {"kind": "ConfigMap", "metadata": META}


# ------------------------------------------------------------------------ what passes


@pytest.mark.parametrize(
    "first",
    [
        (429, status(429, "TooManyRequests"), {"Retry-After": "0"}),
        (503, b"no healthy upstream"),
        (502, PAGE),
        (504, status(504, "Timeout")),
        (500, status(500, "InternalError", "failed calling webhook \"validator.training\"")),
        (409, status(409, "Conflict", "Operation cannot be fulfilled on resourcequotas")),
    ],
    ids=["429", "503", "502", "504", "webhook", "conflict"],
)  # fmt: skip
def test_what_passes_is_asked_again(first: Any) -> None:
    handler, asked = answering(first, first, (201, ITEM))
    assert ask(handler, lambda c: c.create("/api/v1/x", ITEM), patience=60.0) == ITEM
    assert len(asked) == 3


@pytest.mark.parametrize("words", ["", ": context deadline exceeded"])
def test_who_does_not_wait_for_a_webhook_asks_once(words: str) -> None:
    said = f'failed calling webhook "validator.training"{words}'
    handler, asked = answering((500, status(500, "InternalError", said)), (201, ITEM))

    def create(client: Client) -> Any:
        return client.create("/api/v1/x", ITEM, awaits_webhooks=False)

    with pytest.raises(Refused):
        ask(handler, create, patience=60.0)
    assert len(asked) == 1
    busy = (503, b"no healthy upstream")
    assert ask(answering(busy, (201, ITEM))[0], create, patience=60.0) == ITEM


@pytest.mark.parametrize("said", ["1", "a date"])
def test_a_server_says_how_long_it_wants_to_be_left_alone(said: str) -> None:
    dated = {
        "Date": "Sun, 06 Nov 1994 08:49:37 GMT",
        "Retry-After": "Sun, 06 Nov 1994 08:49:38 GMT",
    }
    headers = {"Retry-After": said} if said.isdigit() else dated
    busy = (429, status(429, "TooManyRequests"), headers)
    handler, _ = answering(busy, (200, ITEM))
    began = time.monotonic()
    ask(handler, lambda c: c.get("/api/v1/x"), patience=60.0)
    assert time.monotonic() - began >= 1
    with pytest.raises(Refused, match="because"):
        ask(answering(busy)[0], lambda c: c.get("/api/v1/x"), patience=0.5)


QUOTA = status(403, "Forbidden", 'tfjobs "a" is forbidden: exceeded quota: q, limited: 1')


@pytest.mark.parametrize("refusal", [status(409, "AlreadyExists"), QUOTA], ids=["name", "quota"])
@pytest.mark.parametrize("theirs", ["r1", "r2", "", "hidden"])
def test_an_answer_that_got_lost_makes_nothing_twice(theirs: str, refusal: dict[str, Any]) -> None:
    there = {**ITEM, "metadata": {**META, "annotations": {"run": theirs}}}
    made: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            if theirs == "hidden":
                return web.json_response(status(403, "Forbidden", "not to be read"), status=403)
            found = there if theirs else status(404, "NotFound", "not found")
            return web.json_response(found, status=200 if theirs else 404)
        made.append(request.method)
        if len(made) == 1:  # it is made, and the connection breaks
            assert request.transport
            request.transport.abort()
            return web.Response()
        return web.json_response(refusal, status=refusal["code"])

    work = lambda c: c.create("/api/v1/x", ITEM)  # noqa: E731
    if theirs == "r1":
        assert ask(handler, work, patience=60.0) == there
    else:
        with pytest.raises(Refused) as caught:
            ask(handler, work, patience=60.0)
        assert caught.value.message == refusal["message"]
    made.clear()
    work = lambda c: c.create("/api/v1/x", ITEM, dry_run=True)  # noqa: E731
    with pytest.raises(Refused, match=re.escape(refusal["message"])):  # a trial makes nothing
        ask(handler, work, patience=60.0)


@pytest.mark.parametrize("refusal", [status(409, "AlreadyExists"), QUOTA], ids=["name", "quota"])
def test_what_was_there_before_is_not_taken_for_ours(refusal: dict[str, Any]) -> None:
    handler, asked = answering((refusal["code"], refusal))
    with pytest.raises(Refused) as caught:
        ask(handler, lambda c: c.create("/api/v1/x", ITEM))
    assert caught.value.reason == refusal["reason"]
    assert asked == ["POST /api/v1/x"]


def test_credentials_that_ended_are_read_anew_once() -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["Authorization"])
        fine = seen[-1] == "Bearer new" and request.path == "/fine"
        return web.json_response(ITEM if fine else status(401, "Unauthorized", "Unauthorized"),
                                 status=200 if fine else 401)  # fmt: skip

    assert ask(handler, lambda c: c.get("/fine")) == ITEM
    assert seen == ["Bearer old", "Bearer new"]
    with pytest.raises(Refused, match="context test does not accept these credentials"):
        ask(handler, lambda c: c.get("/never"))


# ----------------------------------------------------------------------- what does not


@pytest.mark.parametrize("code", [200, 400, 403, 404])
def test_a_page_of_somebody_else_is_no_answer(code: int) -> None:
    handler, asked = answering((code, PAGE))
    with pytest.raises(ClusterFault) as caught:
        ask(handler, lambda c: c.find("/api/v1/x"), patience=60.0)
    assert "'Sign in & go on'" in caught.value.message
    assert "login page" in caught.value.hint
    assert len(asked) == 1


def test_a_way_to_a_login_page_is_not_followed() -> None:
    there = {"Location": "https://login.example.com/oauth?state=s3cret"}
    handler, asked = answering((302, b"", there))
    for work in (lambda c: c.get("/x"), lambda c: c.create("/x", ITEM)):
        with pytest.raises(ClusterFault) as caught:
            ask(handler, work, patience=60.0)
        assert "redirects to https://login.example.com (302)" in caught.value.message
        assert "s3cret" not in caught.value.message
    assert asked == ["GET /x", "POST /x"]


def test_an_api_that_is_not_there_is_not_there() -> None:
    handler, _ = answering((404, b"404 page not found\n"))
    assert ask(handler, lambda c: c.find("/apis/kubeflow.org/v1")) is None


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key, signed by nobody but itself."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert", folder / "key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=test", "-keyout", str(key), "-out", str(cert)),
            *("-addext", "subjectAltName=IP:127.0.0.1,DNS:inner"),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "is not trusted: self-signed certificate"),
        ({"ca": True, "name": "outer"}, "is not trusted: Hostname mismatch"),
        ({"ca": True}, ""),
        ({"ca": True, "name": "inner"}, ""),
        ({"verified": False}, ""),
        ({"plain": True}, "the TLS handshake with the cluster"),
    ],
    ids=["nobody's", "other name", "trusted", "tls-server-name", "insecure", "plain"],
)
def test_whom_to_trust(certificate: tuple[Path, Path], changes: dict[str, Any], said: str) -> None:
    handler, _ = answering((200, ITEM))
    changes = dict(changes)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    plain = changes.pop("plain", False)
    if changes.pop("ca", False):
        changes["authority"] = certificate[0].read_bytes()

    async def main() -> None:
        async with serving(handler, **({} if plain else {"ssl_context": context})) as host:
            host = host.replace("http://", "https://")
            async with asyncio.timeout(60), Client(access(host, **changes), 3600) as made:
                if not said:
                    assert await made.get("/x") == ITEM
                    return
                with pytest.raises(ClusterFault) as caught:
                    await made.get("/x")
                assert said in caught.value.message
                assert host in caught.value.message

    asyncio.run(main())


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("https://no-such-host.invalid", "the host name cannot be resolved"),
        ("http://127.0.0.1:1", "connection refused, nothing listens there"),
        ("not a url", "no request can be sent to"),
    ],
)
def test_where_nobody_is(host: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_faults, "_NAME_WAIT", 0.3)

    async def main() -> None:
        patience = 0.5 if "refused" in said else 3600
        async with asyncio.timeout(60), Client(access(host), patience) as made:
            with pytest.raises(ClusterFault) as caught:
                await made.get("/x")
            assert said in caught.value.message

    asyncio.run(main())


def test_a_token_that_no_header_holds_is_not_shown() -> None:
    handler, _ = answering((200, ITEM))

    async def main() -> None:
        async with serving(handler) as host, Client(access(host, "s3\ncret"), 3600) as made:
            with pytest.raises(ClusterFault) as caught:
                async with asyncio.timeout(60):
                    await made.get("/x")
            assert "no request can be sent to" in caught.value.message
            assert "cret" not in f"{caught.value.message} {caught.value.hint}"

    asyncio.run(main())


POD = "/api/v1/namespaces/team/pods/a"


@contextlib.asynccontextmanager
async def refusing(answer: str) -> AsyncIterator[tuple[int, list[str]]]:
    """A proxy that answers each CONNECT so; what it was asked is collected."""
    asked: list[str] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], asked


async def tried_again(found: Access, asked: list[str]) -> None:
    """See that whoever has time asks more than once."""
    tries = len(asked)
    async with Client(found, 3600) as patient:
        asking = asyncio.ensure_future(patient.get("/x"))
        async with asyncio.timeout(60):
            while len(asked) < tries + 2:
                assert not asking.done()
                await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


def kubeconfig(path: Path, **cluster: str) -> None:
    one = {"cluster": "c", "user": "u", "namespace": "team"}
    cluster = {"server": "https://cluster.example.com:6443", **cluster}
    content = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "t0ken"}}],
        "contexts": [{"name": "test", "context": one}],
        "current-context": "test",
    }
    path.write_text(json.dumps(content))


async def told(made: Client) -> list[str]:
    """What every way to ask a server says where it cannot be asked."""
    watched = WatchedList(made, "/x", {}, asyncio.Event())
    watching = asyncio.ensure_future(watched.run())
    async with asyncio.timeout(60):
        while not watched.fault and not watching.done():
            await asyncio.sleep(0.01)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    said = [watched.fault]
    nothing = Streams(lambda _: None, lambda _: None)
    for work in (
        lambda: made.get("/x"),
        lambda: made.create("/x", ITEM),
        lambda: made.text("/x"),
        lambda: execute(made, POD, "main", ["true"], nothing),
    ):
        with pytest.raises(ClusterFault) as caught:
            await work()
        assert caught.value.__cause__ is None  # else a traceback would show it
        said.append(f"{caught.value.message} {caught.value.hint}")
    log = LogRequest(made, f"{POD}/log", {}, Replay(ResumePosition()), 5, 0)
    assert [piece async for piece in log.read()] == []
    return [*said, made.retry_reason, str(log.refusal)]


@pytest.mark.parametrize("named", ["proxy-url", "HTTPS_PROXY"])
@pytest.mark.parametrize(
    ("answer", "said", "hint"),
    [
        ("407 Proxy Authentication Required", "requires a valid user and password (407)",
         "Put both into the proxy-url of the kubeconfig, or into HTTPS_PROXY"),
        ("403 Forbidden", "did not open the connection (403 Forbidden)", "The proxy-url of the"),
        ("502 Bad Gateway", "did not open the connection (502 Bad Gateway)",
         "The proxy-url of the"),
    ],
)  # fmt: skip
def test_a_proxys_password_is_in_no_message(
    answer: str, said: str, hint: str, named: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))

    async def main() -> None:
        async with refusing(answer) as (port, asked):
            proxy = f"http://ada:s3cret@127.0.0.1:{port}"
            if named == "HTTPS_PROXY":
                monkeypatch.setenv(named, proxy)
            kubeconfig(tmp_path / "config", **({named: proxy} if named == "proxy-url" else {}))
            found = await access_module.load()
            async with asyncio.timeout(100), Client(found, 1.0) as made:
                words = await told(made)
                tries = len(asked)
                with pytest.raises(ClusterFault) as caught:
                    await made.get("/x")
            # Who is told again and again may lock the user out.
            if answer.startswith("4"):
                assert len(asked) == tries + 1
            else:
                await tried_again(found, asked)
            assert all("Proxy-Authorization: Basic " in one for one in asked)
        fault = caught.value
        assert fault.message == (
            f"the cluster of context test (https://cluster.example.com:6443) does not answer: "
            f"the proxy {said}."
        )
        assert fault.hint.startswith(hint)
        assert words[0] == f"the proxy {said}"
        for one in words[1:-1]:
            assert said in one
        for one in (*words, fault.message, fault.hint):
            assert "s3cret" not in one
            assert "t0ken" not in one

    asyncio.run(main())
    gc.collect()
    assert "s3cret" not in caplog.text + "".join(capfd.readouterr())


@pytest.mark.parametrize(
    "proxy", ["http://ada:s3/cret@127.0.0.1:3128", "http://ada:s3cret@127.0.0.1:99999",
              "http://ada:s3cret€@127.0.0.1:3128"]
)  # fmt: skip
def test_a_proxys_address_that_is_none_is_in_no_message(
    proxy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    kubeconfig(tmp_path / "config", **{"proxy-url": proxy})

    async def main() -> None:
        async with (
            asyncio.timeout(100),
            Client(await access_module.load(), 60) as made,
        ):
            for one in await told(made):
                assert "cret" not in one
            with pytest.raises(ClusterFault, match="no request can be sent to") as caught:
                await made.get("/x")
            assert "the proxy-url" in caught.value.hint

    asyncio.run(main())


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ("https://ada:s3cret@login.example.com/oauth?state=s3cret", "https://…@login.example.com"),
        ("/oauth?state=s3cret", "another path"),
    ],
)
def test_a_command_that_is_sent_to_a_login_page_shows_its_host_alone(there: str, said: str) -> None:
    nothing = Streams(lambda _: None, lambda _: None)
    handler, asked = answering((302, b"", {"Location": there}))
    with pytest.raises(ClusterFault) as caught:
        ask(handler, lambda c: execute(c, POD, "main", ["true"], nothing))
    assert f"does not answer: it redirects to {said}; the result of" in caught.value.message
    assert "s3cret" not in caught.value.message
    assert len(asked) == 1


DAMAGED = b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("authority", [DAMAGED, b"no certificate", b"\xff", b"\n"])
def test_damaged_certificates_are_said(authority: bytes) -> None:
    async def main() -> None:
        found = access("https://127.0.0.1:1", authority=authority)
        async with Client(found, 3600) as made:
            with pytest.raises(ClusterFault, match="certificates of context test cannot be used"):
                await made.get("/x")

    asyncio.run(main())


def test_an_answer_without_an_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "_MOST", 1 << 20)

    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await answer.write(b"x" * 65536)
        return answer

    with pytest.raises(ClusterFault, match="answered with more than 1 MiB"):
        ask(handler, lambda c: c.get("/x"), patience=60.0)


# ---------------------------------------------------------------------------- anything

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["metadata", "status", "items", "spec", "hard", "used", "resources", "name", "uid",
             "annotations", "labels", "resourceRules", "verbs", "allowed", "kind", "code", "x"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip
BODIES = st.one_of(
    JSON.map(lambda value: json.dumps(value).encode()),
    JSON.map(lambda value: json.dumps(value).encode()[:-1]),
    st.binary(max_size=64),
    st.just(PAGE),
    st.just(b"[" * 200_000),
    st.just(b'{"metadata":' * 50_000),
)
CODES = st.sampled_from([200, 201, 204, 301, 400, 401, 403, 404, 409, 410, 418, 422, 429, 500, 503])
KINDS = st.sampled_from(
    ["application/json", "text/html", "application/json; charset=hex", "x", "text/plain; charset=ä"]
)
ANSWERS = st.tuples(CODES, BODIES, KINDS.map(lambda kind: {"Content-Type": kind}))
FUZZ = settings(
    max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
Work = Callable[[Client], Awaitable[Any]]


def survive(found: list[Any], *works: Work) -> None:
    """Each work either ends or says in our words why it does not."""
    handler, _ = answering(*found)

    async def one(made: Client, work: Work) -> None:
        with contextlib.suppress(CiaoError):
            await work(made)

    async def all_of_them(made: Client) -> None:
        await asyncio.gather(*(one(made, work) for work in works))

    ask(handler, all_of_them, patience=0.05)


@FUZZ
@given(st.lists(ANSWERS, min_size=1, max_size=9))
def test_requests_survive_any_answer(found: list[Any]) -> None:
    survive(
        found,
        lambda c: c.get("/x"),
        lambda c: c.find("/x"),
        lambda c: c.known("/x"),
        lambda c: c.text("/x"),
        lambda c: c.create("/x", ITEM),
        lambda c: c.patch("/x", ITEM),
        lambda c: c.delete("/x"),
    )


@FUZZ
@given(st.lists(ANSWERS, min_size=1, max_size=9))
def test_checks_survive_any_answer(found: list[Any]) -> None:
    right = rights.Right("get", "pods")
    job = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "a"}, "spec": {}}
    made = JobManifest("kubeflow.org/v1", "TFJob", "tfjobs", "tensorflow", {})
    survive(
        found,
        lambda c: rights.allowed(c, "team", right),
        lambda c: rights.role(c, "team", [right]),
        lambda c: checks.check(Target(c, "team"), made),
        lambda c: checks.namespace_facts(Target(c, "team")),
        lambda c: quotas.check(Target(c, "team"), Objects((), job, "/x/tfjobs")),
        lambda c: checks.dry_run(Target(c, "team"), [("/x", ITEM)], [ITEM], job),
    )


@FUZZ
@given(st.lists(ANSWERS, min_size=1, max_size=4))
def test_watches_survive_any_answer(found: list[Any]) -> None:
    async def watch(made: Client) -> None:
        watched = WatchedList(made, "/x", {}, asyncio.Event())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await watched.run()

    survive(found, watch)
