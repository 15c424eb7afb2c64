"""A cluster that is made again: its kubeconfig has another address or another authority then."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from ciao_kernel.backends.kubernetes.cluster.pod_view import LatestPod
from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube import access as kube_access
from ciao_kernel.kube import configured
from ciao_kernel.kube.access import Access
from ciao_kernel.kube.client import Client
from ciao_kernel.kube.logs import ContainerLog, Lines
from ciao_kernel.kube.watch import WatchedList
from tests.integration.kube.test_credentials import command, knows_new, run
from tests.integration.kube.test_credentials import pki as pki  # a fixture
from tests.integration.kube.test_responses import serving

pytestmark = pytest.mark.stands_for("oldest")

Configure = Callable[..., None]
ASK: list[Callable[[Client], Any]] = [lambda c: c.get("/x"), lambda c: c.post("/x", {"kind": "X"})]


async def answers(request: web.Request) -> web.StreamResponse:
    return web.json_response({"kind": "Pod"})


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Writes the kubeconfig: a cluster, or a text that is none."""
    path = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(path))

    def write(text: str = "", user: Any = None, **cluster: Any) -> None:
        config = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user or {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        fresh = path.with_suffix(".new")
        fresh.write_text(text or yaml.safe_dump(config))
        fresh.replace(path)  # another file: two writes may have one time

    return write


class Load:
    """Reads the kubeconfig, and counts."""

    def __init__(self) -> None:
        self.times = 0

    async def __call__(self, context: str) -> Access:
        self.times += 1
        return await kube_access.load(context)


@pytest.mark.parametrize("ask", ASK, ids=["get", "post"])
def test_a_server_at_another_address_is_found_there(configure: Configure, ask: Any) -> None:
    async def work() -> None:
        load = Load()
        async with serving(answers) as host:
            configure(server=host)
            client = Client(await kube_access.load(), 0.0, load)
            assert await ask(client)
        async with client, serving(answers) as host:
            configure(server=host)
            for _ in range(2):
                assert await ask(client)
        assert load.times == 1

    run(work)


def test_a_server_of_another_authority_is_trusted_by_the_new_one(
    configure: Configure, request: pytest.FixtureRequest
) -> None:
    certificates: Path = request.getfixturevalue("pki")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificates / "server.crt", certificates / "server.key")

    def authority(name: str) -> dict[str, str]:
        data = (certificates / f"{name}.crt").read_bytes()
        return {"certificate-authority-data": base64.b64encode(data).decode()}

    async def work() -> None:
        async with serving(answers, ssl_context=tls) as host:
            configure(server=host, **authority("old"))
            async with Client(await kube_access.load(), 0.0) as client:
                with pytest.raises(ClusterFault, match="is not trusted"):
                    await client.get("/x")
                configure(server=host, **authority("server"))
                assert await client.get("/x")

    run(work)


async def _get(client: Client) -> None:
    assert await client.get("/x")


async def _watch(client: Client) -> None:
    changed = asyncio.Event()
    watching = asyncio.create_task(WatchedList(client, "/list", {}, changed).run())
    await changed.wait()  # it is away
    changed.clear()
    await changed.wait()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def _log(client: Client) -> None:
    """The watch may go on over the connection that it has, and notice nothing."""
    ended = {"terminated": {"exitCode": 0, "containerID": "c"}}
    pod = {
        "metadata": {"uid": "p"},
        "spec": {"containers": [{"name": "main"}], "restartPolicy": "Never"},
        "status": {"containerStatuses": [{"name": "main", "state": ended, "restartCount": 0}]},
    }
    log = ContainerLog(client, "team", "a", "main", LatestPod(pod))
    found = [one async for one in log.read()]
    assert [one.data for one in found if isinstance(one, Lines)] == [b"the line\n"]


async def _command(client: Client) -> None:
    assert await command(client) == 0


@pytest.mark.parametrize("ask", [_get, _watch, _log, _command])
@pytest.mark.parametrize("of_account", [True, False], ids=["service account", "kubeconfig"])
def test_an_authority_that_is_renewed_in_its_file_counts_at_once(
    of_account: bool,
    ask: Callable[[Client], Any],
    configure: Configure,
    pki: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kubeconfig, which only names the file, stays the same; a pod's account has none."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pki / "server.crt", pki / "server.key")
    monkeypatch.setattr(configured, "ACCOUNT", tmp_path)
    (tmp_path / "token").write_text("new")

    def trust(name: str) -> None:
        fresh = tmp_path / "fresh"
        fresh.write_bytes((pki / f"{name}.crt").read_bytes())
        fresh.replace(tmp_path / "ca.crt")

    async def serve(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/log"):
            return web.Response(body=b"2026-01-01T00:00:00.000000000Z the line\n")
        if request.path == "/list":
            return web.json_response({"items": [], "metadata": {"resourceVersion": "1"}})
        return await knows_new(request)

    async def work() -> None:
        trust("old")
        async with serving(serve, ssl_context=tls) as host:
            if of_account:
                monkeypatch.setenv("KUBECONFIG", "")
                monkeypatch.setenv("HOME", str(tmp_path))
                monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
                monkeypatch.setenv("KUBERNETES_SERVICE_PORT", host.rpartition(":")[2])
            else:
                user = {"tokenFile": str(tmp_path / "token")}
                authority = str(tmp_path / "ca.crt")
                configure(user=user, server=host, **{"certificate-authority": authority})
            async with Client(await kube_access.load(), 0.0) as client:
                with pytest.raises(ClusterFault, match="is not trusted"):
                    await client.get("/x")
                working = asyncio.create_task(ask(client)) if ask in (_watch, _log) else None
                await asyncio.sleep(0.2)
                trust("server")
                await (working or ask(client))

    run(work)


def test_a_watch_goes_on_at_the_other_address(configure: Configure) -> None:
    asked = asyncio.Event()

    async def note(request: web.Request) -> web.StreamResponse:
        asked.set()
        return await answers(request)

    async def work() -> None:
        async with serving(answers) as host:
            configure(server=host)
            client = Client(await kube_access.load(), 0.0)
        async with client, serving(note) as host:
            configure(server=host)
            task = asyncio.create_task(WatchedList(client, "/x", {}, asyncio.Event()).run())
            await asked.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(work)


def test_a_watch_reads_its_list_anew_from_another_cluster(configure: Configure) -> None:
    """It does not know the versions of the first one, and would wait for them without a word."""
    watched = asyncio.Event()

    async def lists(request: web.Request, uids: tuple[str, ...], version: str) -> web.Response:
        items = [{"metadata": {"uid": uid}} for uid in uids]
        return web.json_response({"items": items, "metadata": {"resourceVersion": version}})

    async def first(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return await lists(request, ("old",), "90000")
        watched.set()
        answer = web.StreamResponse()
        await answer.prepare(request)
        await asyncio.sleep(60)
        return answer

    async def second(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return await lists(request, ("new",), "7")
        assert request.query["resourceVersion"] == "7"
        await asyncio.sleep(60)
        return web.StreamResponse()

    async def work() -> None:
        changed = asyncio.Event()
        async with serving(first) as host:
            configure(server=host)
            client = Client(await kube_access.load(), 0.0)
            watch = WatchedList(client, "/x", {}, changed)
            task = asyncio.create_task(watch.run())
            await watched.wait()
            assert list(watch.items) == ["old"]
        async with client, serving(second) as host:
            configure(server=host)
            async with asyncio.timeout(60):
                while list(watch.items) != ["new"]:
                    changed.clear()
                    await changed.wait()
            assert sorted(watch.take()) == ["new", "old"]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(work)


@pytest.mark.parametrize(("text", "times"), [("", 0), ("half of a", 1)], ids=["same", "broken"])
def test_a_kubeconfig_that_tells_nothing_new_changes_no_fault(
    configure: Configure, text: str, times: int
) -> None:
    async def work() -> None:
        load = Load()
        async with serving(answers) as host:
            configure(server=host)
            client = Client(await kube_access.load(), 0.0, load)
        if text:
            configure(text)
        async with client:
            with pytest.raises(ClusterFault, match="does not answer: connection refused"):
                await client.get("/x")
        assert load.times == times

    run(work)
