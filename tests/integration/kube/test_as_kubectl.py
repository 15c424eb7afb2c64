"""What a kubeconfig means to kubectl: the same requests, and the same input of a plug-in."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube import access as kube_access
from ciao_kernel.kube.client import Client
from ciao_kernel.kube.exec import execute
from ciao_kernel.kube.log_request import LogRequest
from ciao_kernel.kube.replay import Replay
from ciao_kernel.kube.resume_position import ResumePosition
from ciao_kernel.kube.watch import WatchedList
from ciao_kernel.model.queries import Streams
from tests.helpers.certificates import make_certificate
from tests.integration.kube.test_responses import serving

DONE = b'\x03{"metadata": {}, "status": "Success"}'
VERSION = "client.authentication.k8s.io/v1"
POD = "/api/v1/namespaces/team/pods/a"
SOMEBODY = {
    "as": "ada",
    "as-uid": "7",
    "as-groups": ["team", "night shift"],
    "as-user-extra": {"acme.com/project": ["one", "two"], "Scopes": ["50%"]},
}

Configure = Callable[[Any, Any], Path]


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of this machine, and its key."""
    return make_certificate(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def tls(pki: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "crt", pki / "key")
    return context


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Makes a kubeconfig of one user and one cluster the user's own."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)

    def write(user: Any, cluster: Any) -> Path:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        monkeypatch.setenv("KUBECONFIG", str(path))
        return path

    return write


def run(work: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(main())


async def kubectl(*arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        "kubectl", *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    return out.decode()


needs_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not installed: no comparison with it"
)


class Recorder:
    """An API server that answers everything, and keeps the headers of each request."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, list[str]]]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        about = ("authorization", "impersonate")
        found: dict[str, list[str]] = {}
        for name, value in request.headers.items():
            if name.lower().startswith(about):
                found.setdefault(name.lower(), []).append(value)
        self.seen.append((request.path, found))
        if request.path.endswith("/exec"):
            channel = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
            await channel.prepare(request)
            await channel.send_bytes(DONE)
            await channel.close()
            return channel
        return web.json_response({"kind": "PodList", "items": [], "metadata": {}})


@pytest.mark.stands_for("oldest")
def test_every_request_is_made_as_the_other_user(
    pki: Path, tls: ssl.SSLContext, configure: Configure
) -> None:
    server = Recorder()
    nothing = Streams(lambda _: None, lambda _: None)

    async def work() -> None:
        async with serving(server.answer, ssl_context=tls) as host:
            cluster = {"server": host, "certificate-authority": str(pki / "crt")}
            configure({"token": "t0ken", **SOMEBODY}, cluster)
            async with Client(await kube_access.load()) as client:
                await client.get("/get")
                await client.post("/post", {})
                await client.text("/text")
                await execute(client, POD, "main", ["true"], nothing)
                log = LogRequest(client, f"{POD}/log", {}, Replay(ResumePosition()), 5, 0)
                _ = [piece async for piece in log.read()]
                watching = asyncio.ensure_future(
                    WatchedList(client, "/watch", {}, asyncio.Event()).run()
                )
                while "/watch" not in [path for path, _ in server.seen]:
                    await asyncio.sleep(0.01)
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    run(work())
    assert {path for path, _ in server.seen} == {
        "/get", "/post", "/text", f"{POD}/exec", f"{POD}/log", "/watch",
    }  # fmt: skip
    for _, headers in server.seen:
        assert headers == {
            "authorization": ["Bearer t0ken"],
            "impersonate-user": ["ada"],
            "impersonate-uid": ["7"],
            "impersonate-group": ["team", "night shift"],
            "impersonate-extra-acme.com%2fproject": ["one", "two"],
            "impersonate-extra-scopes": ["50%"],
        }


@pytest.mark.stands_for("oldest", only="https")
@needs_kubectl
@pytest.mark.parametrize(
    "user",
    [
        {"token": "t0ken", **SOMEBODY},
        {"token": "t0ken", "tokenFile": "token"},
        {"tokenFile": "token"},
        {"username": "ada", "password": "pw"},
        {"token": "t0ken", "exec": {"apiVersion": VERSION, "command": "./never-run",
                                    "interactiveMode": "Never"}},
    ],
    ids=["impersonation", "token and file", "file", "password", "token and plug-in"],
)  # fmt: skip
@pytest.mark.parametrize("encrypted", [True, False], ids=["https", "http"])
def test_the_headers_are_those_of_kubectl(
    user: dict[str, Any], encrypted: bool, pki: Path, tls: ssl.SSLContext, configure: Configure,
    tmp_path: Path,
) -> None:  # fmt: skip
    server = Recorder()
    (tmp_path / "token").write_text("of a file\n")

    async def work() -> None:
        async with serving(server.answer, **({"ssl_context": tls} if encrypted else {})) as host:
            cluster = {"server": host, "certificate-authority": str(pki / "crt")}
            configure(user, cluster)
            await kubectl("get", "--raw", "/get")
            async with Client(await kube_access.load()) as client:
                await client.get("/get")

    run(work())
    theirs, ours = (headers for path, headers in server.seen if path == "/get")
    assert ours == theirs
    assert bool(ours.get("authorization")) is encrypted


CLUSTER_INFO = [
    {"tls-server-name": "127.0.0.1"},
    {"insecure-skip-tls-verify": True, "certificate-authority": ""},
    {"disable-compression": True},
    {"extensions": [
        {"name": "other", "extension": {"x": 1}},
        {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a", "list": [1]}},
    ]},
]  # fmt: skip


def plugin(folder: Path, **more: Any) -> dict[str, Any]:
    """Return a plug-in that keeps its input in a file, one line for each run."""
    given = {"apiVersion": VERSION, "kind": "ExecCredential", "status": {"token": "t0ken"}}
    path = folder / "sign-in"
    path.write_text(
        f"#!{sys.executable}\nimport json, os, pathlib\n"
        "with pathlib.Path(__file__).with_name('input').open('a') as file:\n"
        "    json.dump(json.loads(os.environ['KUBERNETES_EXEC_INFO']), file)\n"
        f"    file.write('\\n')\nprint({json.dumps(given)!r})\n"
    )
    path.chmod(0o755)
    return {"exec": {"apiVersion": VERSION, "command": "./sign-in", **more}}


@needs_kubectl
@pytest.mark.parametrize("info", [True, False], ids=["cluster info", "none"])
@pytest.mark.parametrize("more", CLUSTER_INFO, ids=lambda more: next(iter(more)))
def test_a_plugin_gets_the_input_that_kubectl_gives_it(
    more: dict[str, Any], info: bool, pki: Path, tls: ssl.SSLContext, configure: Configure,
    tmp_path: Path,
) -> None:  # fmt: skip
    shutil.copy(pki / "crt", tmp_path / "ca.crt")

    async def work() -> None:
        async with serving(Recorder().answer, ssl_context=tls) as host:
            cluster = {"server": host, "certificate-authority": "ca.crt", **more}
            user = plugin(tmp_path, provideClusterInfo=info, interactiveMode="IfAvailable")
            configure(user, {name: value for name, value in cluster.items() if value})
            await kubectl("get", "--raw", "/get")
            await kube_access.load()

    run(work())
    theirs, ours = map(json.loads, (tmp_path / "input").read_text().splitlines())
    assert ours == theirs


def test_a_plugin_gets_the_authority_as_data_and_its_own_settings(
    pki: Path, configure: Configure, tmp_path: Path
) -> None:
    """The same without kubectl, whose answers these are."""
    settings = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority": str(pki / "crt"),
               "proxy-url": "http://proxy:3128", "extensions": [settings]}  # fmt: skip
    configure(plugin(tmp_path, provideClusterInfo=True), cluster)
    run(kube_access.load())
    assert json.loads((tmp_path / "input").read_text())["spec"] == {
        "interactive": False,
        "cluster": {
            "server": "https://127.0.0.1:1",
            "certificate-authority-data": base64.b64encode((pki / "crt").read_bytes()).decode(),
            "proxy-url": "http://proxy:3128",
            "config": {"audience": "a"},
        },
    }


def test_a_plugin_that_needs_a_terminal_is_not_run(configure: Configure, tmp_path: Path) -> None:
    cluster = {"server": "https://127.0.0.1:1"}
    configure(plugin(tmp_path, interactiveMode="Always"), cluster)
    with pytest.raises(ClusterFault, match="needs a terminal") as caught:
        run(kube_access.load())
    assert "interactiveMode: Always" in caught.value.message
    assert "interactiveMode: IfAvailable" in caught.value.hint
    assert not (tmp_path / "input").exists()
    configure(plugin(tmp_path, interactiveMode="Sometimes"), cluster)
    with pytest.raises(ClusterFault, match="its interactiveMode Sometimes is none of Never"):
        run(kube_access.load())


async def forwarding(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Refuse what a proxy is asked for: only that it was asked matters."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 403 by the proxy\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()
    writer.close()


@pytest.mark.stands_for("oldest")
@pytest.mark.parametrize(
    ("proxy_url", "variables", "by_proxy"),
    [
        ("", {"HTTPS_PROXY": "PROXY"}, True),
        ("", {"HTTPS_PROXY": "PROXY", "NO_PROXY": "192.0.2.0/24"}, False),
        ("", {"HTTPS_PROXY": "PROXY", "NO_PROXY": "198.51.100.0/24"}, True),
        ("", {"ALL_PROXY": "PROXY"}, False),
        ("PROXY", {"NO_PROXY": "*"}, True),
        ("PROXY", {"HTTPS_PROXY": "http://127.0.0.1:1"}, True),
    ],
)
def test_which_way_an_api_server_is_asked(
    proxy_url: str, variables: dict[str, str], by_proxy: bool, configure: Configure,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """192.0.2.0/24 is nobody's (RFC 5737)."""

    async def work() -> None:
        proxy = await asyncio.start_server(forwarding, "127.0.0.1", 0)
        async with proxy:
            place = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
            cluster = {"server": "https://192.0.2.1:6443"}
            if proxy_url:
                cluster["proxy-url"] = place
            configure({"token": "t"}, cluster)
            for name, value in variables.items():
                monkeypatch.setenv(name, value.replace("PROXY", place))
            found = await kube_access.load()
            assert found.options() == ({"proxy": place} if by_proxy else {})
            if by_proxy:
                async with Client(found, 0.2) as client:
                    with pytest.raises(ClusterFault, match="403 by the proxy"):
                        await client.get("/x")

    run(work())


@pytest.mark.stands_for("oldest")
def test_a_proxy_of_the_environment_that_is_none_of_http(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure({"token": "t"}, {"server": "https://192.0.2.1:6443"})
    monkeypatch.setenv("HTTPS_PROXY", "socks5://ada:s3cret@proxy:1080")

    async def work() -> None:
        async with Client(await kube_access.load()) as client:
            with pytest.raises(ClusterFault, match="is neither http:// nor https://") as caught:
                await client.get("/x")
            assert "socks5://…@proxy:1080" in caught.value.message
            assert "HTTPS_PROXY" in caught.value.hint

    run(work())
