"""Credentials that end, are refused, are replaced, or lie where somebody cleans up."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube import access as kube_access
from ciao_kernel.kube import connections
from ciao_kernel.kube.access import Access
from ciao_kernel.kube.attach import ContainerInput
from ciao_kernel.kube.client import Client
from ciao_kernel.kube.exec import execute
from ciao_kernel.kube.identity import Identity
from ciao_kernel.kube.watch import WatchedList
from ciao_kernel.model.queries import Streams
from tests.integration.kube.test_responses import access, serving

pytestmark = pytest.mark.stands_for("oldest")

DONE = b'\x03{"metadata": {}, "status": "Success"}'


class Reload:
    """Reads credentials anew: gives what it was told to, and counts."""

    def __init__(self, *found: Access | ClusterFault) -> None:
        self.found, self.times, self.ended = list(found), 0, 0
        self.may = asyncio.Event()
        self.may.set()

    async def __call__(self, context: str) -> Access:
        self.times += 1
        try:
            await asyncio.sleep(0.05)
            await self.may.wait()
        finally:
            self.ended += 1
        found = self.found.pop(0) if len(self.found) > 1 else self.found[0]
        if isinstance(found, ClusterFault):
            raise ClusterFault(found.message, found.hint)
        return found


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30):
            await work()

    asyncio.run(main())


async def knows_new(request: web.Request) -> web.StreamResponse:
    """Believes the token "new" only; runs each command at once."""
    if request.headers.get("Authorization") != "Bearer new":
        return web.json_response({"message": "Unauthorized", "code": 401}, status=401)
    if request.path.endswith("/exec"):
        channel = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await channel.prepare(request)
        await channel.send_bytes(DONE)
        await channel.close()
        return channel
    return web.json_response({"kind": "Pod"})


async def command(client: Client) -> int:
    path = "/api/v1/namespaces/team/pods/a"
    return await execute(client, path, "main", ["true"], Streams(lambda _: None, lambda _: None))


# ------------------------------------------------------------------------------ failures


def test_all_that_wait_hear_of_one_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with serving(knows_new) as host:
            reload = Reload(ClusterFault("no such user", "Sign in."), access(host, "new"))
            async with Client(access(host, "old"), reload=reload) as client:
                asking = [asyncio.create_task(client.get("/x")) for _ in range(10)]
                found = await asyncio.gather(*asking, return_exceptions=True)
                assert {str(one) for one in found} == {"no such user"}
                assert {one.hint for one in found if isinstance(one, ClusterFault)} == {"Sign in."}
                assert reload.times == 1
                monkeypatch.setattr(connections.time, "monotonic", later(10))
                assert (await client.get("/x"))["kind"] == "Pod"
                assert reload.times == 2

    run(work)


def later(seconds: float) -> Callable[[], float]:
    now = time.monotonic
    return lambda: now() + seconds


def test_a_watch_says_why_before_it_renews() -> None:
    async def work() -> None:
        asked, may = asyncio.Event(), asyncio.Event()

        async def slow(context: str) -> Access:
            asked.set()
            await may.wait()
            return client.access

        async with serving(knows_new) as host, Client(access(host, "old"), reload=slow) as client:
            watched = WatchedList(client, "/x", {}, asyncio.Event())
            task = asyncio.create_task(watched.run())
            await asked.wait()
            assert watched.away_since is not None
            assert "Unauthorized" in str(watched.fault)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(work)


def test_a_command_says_that_its_credentials_are_refused() -> None:
    async def work() -> None:
        async with (
            serving(knows_new) as host,
            Client(access(host, "old"), reload=Reload(access(host, "stale"))) as client,
        ):
            sending = ContainerInput(client, "/api/v1/namespaces/team/pods/a", "main")
            for ask in (command(client), sending.send(b"x")):
                with pytest.raises(Refused) as caught:
                    await ask
                assert caught.value.code == 401
                assert "context test does not accept these credentials" in str(caught.value)
                assert caught.value.hint.startswith("Sign in to the cluster again")
            await sending.close()

    run(work)


def test_a_command_tells_refused_credentials_that_cannot_be_renewed() -> None:
    """A sign-in program that fails is no fault of the connection: the user may still sign in."""

    async def work() -> None:
        failing = Reload(ClusterFault("the sign-in program aws failed: exit code 1."))
        async with (
            serving(knows_new) as host,
            Client(access(host, "old"), reload=failing) as client,
        ):
            with pytest.raises(Refused, match="credentials: the sign-in program aws") as caught:
                await command(client)
            assert caught.value.code == 401

    run(work)


def test_a_nodes_own_refusal_of_a_command_is_none_of_the_credentials() -> None:
    """The server passes it on, for example where the node's certificate has expired."""

    async def nodes_own(request: web.Request) -> web.StreamResponse:
        is_command = request.path.endswith("/exec")
        return web.json_response({"kind": "Pod"}, status=401 if is_command else 200)

    async def work() -> None:
        async with (
            serving(nodes_own) as host,
            Client(access(host, "valid"), reload=Reload(access(host, "valid"))) as client,
        ):
            with pytest.raises(Refused) as caught:
                await command(client)
            assert caught.value.code == 401
            assert "credentials" not in str(caught.value)
            assert "Sign in" not in caught.value.hint

    run(work)


# ------------------------------------------------------------------------------- the end


def test_what_is_about_to_end_is_renewed_before_it_is_used() -> None:
    async def work() -> None:
        async with serving(knows_new) as host:
            due = access(host, who=Identity("Bearer old", due=time.time() - 1))
            for ask in (lambda c: c.get("/x"), command):
                reload = Reload(access(host, "new"))
                async with Client(due, reload=reload) as client:
                    await ask(client)
                    assert (reload.times, client.access.identity.due) == (1, float("inf"))

    run(work)


def test_what_cannot_be_renewed_is_used_as_long_as_it_is_believed() -> None:
    async def work() -> None:
        async with serving(knows_new) as host:
            reload = Reload(ClusterFault("no such user"))
            due = access(host, who=Identity("Bearer new", due=time.time() - 1))
            async with Client(due, reload=reload) as client:
                for _ in range(3):
                    assert (await client.get("/x"))["kind"] == "Pod"
                assert reload.times == 1

    run(work)


@pytest.mark.parametrize("due", [float("inf"), 0.0])
def test_a_caller_with_little_time_leaves_the_renewal_to_the_others(due: float) -> None:
    """As of a sign-in program that opens a page, while a look of two seconds comes again."""

    async def work() -> None:
        async with serving(knows_new) as host:
            reload = Reload(access(host, "new"))
            reload.may.clear()
            old = access(host, who=Identity("Bearer old", due=due))
            async with Client(old, reload=reload) as client:
                for _ in range(3):
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.2):
                            await client.get("/x")
                asking = [asyncio.create_task(client.get("/x")) for _ in range(3)]
                reload.may.set()
                assert {one["kind"] for one in await asyncio.gather(*asking)} == {"Pod"}
                assert reload.times == 1

    run(work)


def test_the_end_of_a_client_is_the_end_of_its_renewal() -> None:
    async def work() -> None:
        async with serving(knows_new) as host:
            reload = Reload(access(host, "new"))
            reload.may.clear()
            async with Client(access(host, "old"), reload=reload) as client:
                asking = asyncio.create_task(client.get("/x"))
                while not reload.times:
                    await asyncio.sleep(0.01)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
                assert not reload.ended
            assert (reload.times, reload.ended) == (1, 1)

    run(work)


# -------------------------------------------------------------------------- certificates


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates and keys, each signed by nobody but itself: server, old, new."""
    folder = tmp_path_factory.mktemp("pki")
    for name in ("server", "old", "new"):
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"),
                *("-pkeyopt", "ec_paramgen_curve:P-256", "-subj", f"/CN={name}"),
                *("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt")),
                *("-addext", "subjectAltName=IP:127.0.0.1"),
            ],
            check=True,
            capture_output=True,
        )
    return folder


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def strict(pki: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that takes the new certificate only, and says so in the handshake.

    In a thread: asyncio closes such a connection without a word.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki / "new.crt"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(pki / "server.crt", pki / "server.key")
    context.maximum_version = request.param
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection.dup() as below, contextlib.suppress(OSError):
                try:
                    with context.wrap_socket(connection, server_side=True) as secure:
                        secure.recv(65536)
                        head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
                        secure.sendall(head + b"{}")
                except ssl.SSLError:
                    # Else what has come by now would make the kernel take our words back.
                    below.settimeout(0.2)
                    while below.recv(65536):
                        pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{listening.getsockname()[1]}"
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join(5)


def certified(pki: Path, host: str, name: str) -> Access:
    certificate, key = ((pki / f"{name}.{kind}").read_bytes() for kind in ("crt", "key"))
    who = Identity(certificate=certificate, key=key)
    return access(host, who=who, authority=(pki / "server.crt").read_bytes())


def test_a_certificate_that_is_refused_is_read_anew_once(pki: Path, strict: str) -> None:
    async def work() -> None:
        reload = Reload(certified(pki, strict, "new"))
        async with Client(certified(pki, strict, "old"), reload=reload) as client:
            assert (await client.get("/x"))["metadata"]
        assert reload.times == 1
        reload = Reload(certified(pki, strict, "old"))
        async with Client(certified(pki, strict, "old"), 1.0, reload) as client:
            with pytest.raises(ClusterFault):
                await client.get("/x")
        assert reload.times == 1

    run(work)


def test_a_watch_and_a_command_read_a_refused_certificate_anew_too(pki: Path, strict: str) -> None:
    async def work() -> None:
        reload = Reload(certified(pki, strict, "new"))
        async with Client(certified(pki, strict, "old"), reload=reload) as client:
            task = asyncio.create_task(WatchedList(client, "/x", {}, asyncio.Event()).run())
            while not reload.times:
                await asyncio.sleep(0.02)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        reload = Reload(certified(pki, strict, "new"))
        async with Client(certified(pki, strict, "old"), reload=reload) as client:
            with pytest.raises(Exception, match="no command can be run in a now"):
                await command(client)  # that server knows no WebSocket: it was reached
        assert reload.times == 1

    run(work)


@pytest.mark.parametrize("ask", [lambda c: c.get("/x"), command], ids=["get", "exec"])
def test_certificates_that_were_half_written_are_read_anew(ask: Any) -> None:
    async def work() -> None:
        async with serving(knows_new) as host:
            lost = access(host, "new", authority=b"-----BEGIN CERT")
            reload = Reload(access(host, "new"))
            async with Client(lost, reload=reload) as client:
                await ask(client)
            assert reload.times == 1

    run(work)


@pytest.mark.parametrize("ask", [lambda c: c.get("/x"), command], ids=["get", "exec"])
def test_the_first_fault_of_certificates_is_told(ask: Any) -> None:
    async def work() -> None:
        lost = access("https://127.0.0.1:1", authority=b"-----BEGIN CERT")
        async with Client(lost, reload=Reload(ClusterFault("no such user"))) as client:
            with pytest.raises(ClusterFault, match="certificates of context test cannot be used"):
                await ask(client)

    run(work)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /tmp of this test alone."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, Any], None]:
    """Makes a kubeconfig of one user and one cluster the user's own."""

    def write(user: Any, cluster: Any) -> None:
        config = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))

    return write


def test_a_cleaned_tmp_takes_no_certificate_away(
    pki: Path, strict: str, temporary: Path, configure: Callable[[Any, Any], None]
) -> None:
    data = {path.name: base64.b64encode(path.read_bytes()).decode() for path in pki.iterdir()}
    user = {"client-certificate-data": data["new.crt"], "client-key-data": data["new.key"]}
    cluster = {"server": strict, "certificate-authority-data": data["server.crt"]}
    configure(user, cluster)

    async def work() -> None:
        async with Client(await kube_access.load()) as client:
            for _ in range(2):
                assert await client.get("/x")
                assert not list(temporary.iterdir()), "a key lies about"
                shutil.rmtree(temporary)
                temporary.mkdir()
                await client.renew()

    run(work)


def test_a_certificate_of_a_plugin_needs_no_file_either(
    pki: Path,
    strict: str,
    temporary: Path,
    tmp_path: Path,
    configure: Callable[[Any, Any], None],
) -> None:
    version = "client.authentication.k8s.io/v1"
    given = {
        "clientCertificateData": (pki / "new.crt").read_text(),
        "clientKeyData": (pki / "new.key").read_text(),
    }
    (tmp_path / "answer").write_text(json.dumps({"apiVersion": version, "status": given}))
    plugin = {"apiVersion": version, "command": "cat", "args": [str(tmp_path / "answer")]}
    # The user's own certificate does not count then.
    user = {"exec": plugin, "client-certificate": str(pki / "old.crt")}
    cluster = {"server": strict, "certificate-authority": str(pki / "server.crt")}
    configure(user, cluster)

    async def work() -> None:
        async with Client(await kube_access.load()) as client:
            assert await client.get("/x")
        assert not list(temporary.iterdir()), "a key lies about"

    run(work)
