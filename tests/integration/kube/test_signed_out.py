"""Credentials that end while a job is followed: a loopback API server refuses them from then on."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.cluster import outages
from ciao_kernel.backends.kubernetes.following.follow import follow
from ciao_kernel.config import Settings
from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube import refused_credentials, watch
from ciao_kernel.kube.client import Client
from ciao_kernel.kube.watch import WatchedList
from ciao_kernel.model import Event, Job, Notice, Replica, Status
from tests.integration.kube.test_credentials import Reload, run
from tests.integration.kube.test_responses import access, serving

pytestmark = pytest.mark.stands_for("oldest")

WORKER = Replica("worker", 0)
JOB = Job("mine", "kubernetes", "tensorflow", (WORKER,), 0.0, "team", uid="j")
PATH = job_metadata.path("team", "tfjobs", "mine")


class Cluster:
    """An API server with one running job. It cuts all watches when a token ends."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.refusals = 0
        """How many more requests it refuses; negative: all of them."""
        self._cut, self._over = asyncio.Event(), False
        notes = job_metadata.notes(JOB, "run", WORKER, [])
        running = {"conditions": [{"type": "Running", "status": "True"}]}
        meta = {"name": "mine", "namespace": "team", "uid": "j", "annotations": notes}
        self._job = {"metadata": meta, "status": running}

    def signs_out(self, refusals: int) -> None:
        """End the token: every watch is cut, and so many requests are refused."""
        self.refusals = refusals
        self._cut.set()
        self._cut = asyncio.Event()

    def ends(self) -> None:
        """Let the job succeed; a watch tells it from now on."""
        self._over = True
        self._job["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.method)
        if self.refusals:
            self.refusals -= 1
            return web.json_response({"message": "Unauthorized", "code": 401}, status=401)
        if "watch" in request.query:
            answer, cut = web.StreamResponse(), self._cut
            await answer.prepare(request)
            if self._over and not request.path.endswith("/pods"):
                event = {"type": "MODIFIED", "object": self._job}
                await answer.write(json.dumps(event).encode() + b"\n")
            await cut.wait()
            return answer
        items: list[Any] = [] if request.path.endswith("/pods") else [self._job]
        return web.json_response({"items": items, "metadata": {"resourceVersion": "1"}})


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_credentials, "_SECONDS", 0.3)
    monkeypatch.setattr(refused_credentials, "_PAUSE", 0.1)


async def followed(
    cluster: Cluster, client: Client, folder: Path, patience: float = 600.0
) -> list[Event]:
    """Follow the job; the token ends at its first status."""
    events: list[Event] = []
    async for event in follow(client, JOB, PATH, folder, Settings(follow_patience=patience)):
        if isinstance(event, Status) and not any(isinstance(one, Status) for one in events):
            cluster.signs_out(-1)
        events.append(event)
    return events


@pytest.mark.parametrize(
    ("renewal", "why"),
    [
        (None, "Unauthorized"),  # a token file that nobody renews, for example
        (
            ClusterFault("the sign-in program aws of the kubeconfig failed: exit code 1."),
            "the sign-in program aws of the kubeconfig failed: exit code 1",
        ),
    ],
    ids=["stale token", "plug-in fails"],
)
def test_a_token_that_ends_ends_the_cell_and_not_the_job(
    renewal: ClusterFault | None, why: str, tmp_path: Path
) -> None:
    async def work() -> None:
        cluster = Cluster()
        async with serving(cluster.answer) as host:
            reload = Reload(renewal or access(host, "old"))
            async with Client(access(host, "old"), reload=reload) as client:
                with pytest.raises(Refused) as caught:
                    await followed(cluster, client, tmp_path, patience=1.0)
        assert caught.value.code == 401
        assert caught.value.message == (
            f"the cluster of context test does not accept these credentials: {why}; "
            "mine keeps running."
        )
        assert "`%ciao attach mine" in caught.value.hint
        assert set(cluster.asked) == {"GET"}, "the job was changed"
        assert reload.times < 20

    run(work)


def test_a_job_is_followed_on_when_its_user_signs_in_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also long after the time in which a command gives credentials up, and while it signs in."""
    monkeypatch.setattr(refused_credentials, "_SECONDS", 0.1)
    monkeypatch.setattr(refused_credentials, "_PAUSE", 0.02)
    monkeypatch.setattr(watch, "_LONGEST_WAIT", 0.1)
    monkeypatch.setattr(outages, "_AWAY", 0.1)

    async def work() -> None:
        cluster = Cluster()
        async with serving(cluster.answer) as host:
            reload = Reload(access(host, "a"))
            reload.may.clear()
            async with Client(access(host, "a"), reload=reload) as client:
                notices: list[str] = []
                async for event in follow(client, JOB, PATH, tmp_path, Settings()):
                    if isinstance(event, Status):
                        if event.settled:
                            break
                        if not notices:
                            cluster.signs_out(-1)
                    elif isinstance(event, Notice):
                        notices.append(event.text)
                        if "does not" in event.text:
                            cluster.refusals = 12  # more than a command bears
                            cluster.ends()
                            reload.may.set()
        assert notices == [
            "the cluster of context test does not accept these credentials: Unauthorized. "
            "If you have to sign in, do it now: it goes on from here once they are accepted …",
            "the API server accepts the credentials again.",
        ]

    run(work)


def test_a_slow_sign_in_program_is_not_run_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its runs takes longer than a watch must have lasted to be begun again at once."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(0)

    async def work() -> None:
        cluster = Cluster()
        async with serving(cluster.answer) as host:
            reload = Reload(access(host, "a"))
            later = SimpleNamespace(monotonic=lambda: time.monotonic() + 6 * reload.times)
            monkeypatch.setattr(watch, "time", later)
            monkeypatch.setattr(watch, "asyncio", SimpleNamespace(sleep=sleep))
            async with Client(access(host, "a"), reload=reload) as client:
                changed = asyncio.Event()
                task = asyncio.create_task(WatchedList(client, "/pods", {}, changed).run())
                await changed.wait()
                cluster.signs_out(-1)
                while len(waits) < 10:
                    await asyncio.sleep(0.01)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    run(work)
    assert waits[9] > 1


def test_a_moment_of_refusals_is_waited_for() -> None:
    async def work() -> None:
        cluster = Cluster()
        async with serving(cluster.answer) as host:
            client = Client(access(host, "a"), reload=Reload(access(host, "a")))
            changed = asyncio.Event()
            watched = WatchedList(client, "/pods", {}, changed)
            task = asyncio.create_task(watched.run())
            await changed.wait()
            for _ in range(2):  # refusals are counted anew after each accepted request
                cluster.signs_out(3)
                while watched.away_since is None:
                    changed.clear()
                    await changed.wait()
                assert watched.fault == "credentials refused: Unauthorized"
                while watched.away_since is not None:
                    changed.clear()
                    await changed.wait()
            assert not task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await client.close()

    run(work)


def test_a_request_waits_for_a_server_that_starts_and_refuses_for_a_moment() -> None:
    async def work() -> None:
        cluster = Cluster()
        async with serving(cluster.answer) as host:
            reload = Reload(access(host, "a"))
            async with Client(access(host, "a"), reload=reload) as client:
                for refusals in (1, 3):
                    cluster.refusals = refusals
                    assert (await client.get("/jobs"))["items"]
                assert reload.times == 2  # a renewal may open a page in a browser
                cluster.refusals = 3
                assert await client.delete("/jobs/mine")

    run(work)


@pytest.mark.parametrize("patience", [60.0, 0.0], ids=["usual", "completion"])
def test_a_request_gives_up_credentials_that_stay_refused(patience: float) -> None:
    async def work() -> None:
        cluster = Cluster()
        cluster.refusals = -1
        async with serving(cluster.answer) as host:
            reload = Reload(access(host, "a"))
            async with Client(access(host, "a"), patience, reload) as client:
                with pytest.raises(Refused) as caught:
                    await client.get("/jobs")
        assert caught.value.message == (
            "the cluster of context test does not accept these credentials: Unauthorized"
        )
        assert "Sign in to the cluster again" in caught.value.hint
        assert reload.times == 1

    run(work)
