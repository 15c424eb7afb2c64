"""What pods use, over HTTP: by the metrics of the cluster, and by a command that breaks often."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp import web

from ciao_kernel.backends.kubernetes.backend import KubernetesBackend
from ciao_kernel.errors import BackendError, CiaoError
from ciao_kernel.model import Replica, Status
from ciao_kernel.model.usage import Usage, UsageReport
from ciao_kernel.session.inspection import query
from ciao_kernel.session.inspection.memory_watch import MemoryWatch
from ciao_kernel.session.session import Session
from tests.helpers import api_metrics
from tests.helpers.api_pods import Pod
from tests.helpers.api_server import ApiServer
from tests.helpers.api_user import Here, run
from tests.helpers.jobs import Recorder, wait

MI = 1024 * 1024
MANY = "%framework=tensorflow\n%name=mine\n%worker=17;%memory=256Mi\n%usage=on\npass"
ONE = "%framework=tensorflow\n%name=mine\n%worker=1;%memory=256Mi\npass"
BROKEN = 6
"""Commands that break; the next one lasts."""


async def endless(pod: Pod) -> int:
    """Write a line, and run until the pod is told to end."""
    pod.print("begins")
    await asyncio.Event().wait()
    return 0


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ApiServer:
    made = ApiServer(tmp_path, endless)
    monkeypatch.setenv("KUBECONFIG", str(made.kubeconfig))
    return made


def reports(display: Recorder) -> list[UsageReport]:
    return [event for event in display.events if isinstance(event, UsageReport)]


@pytest.mark.stands_for("operators")
def test_the_metrics_of_the_cluster_measure_many_replicas(
    server: ApiServer, tmp_path: Path
) -> None:
    """One that was not measured yet has no numbers, and `ciao top` says so."""
    display = Recorder()

    def measured(pod: str) -> tuple[int, int] | None:
        number = int(pod.rpartition("-")[2])
        return None if number == 5 else (250_000_000 + number, 1024 * (90 + number))

    async def work(session: Session, backend: KubernetesBackend) -> UsageReport:
        cell = asyncio.ensure_future(run(session, MANY, display, tmp_path))
        await wait(lambda: reports(display))
        assert display.job
        found = await query.usage(backend, display.job)
        cell.cancel()
        await asyncio.gather(cell, return_exceptions=True)
        return found

    server.metrics = measured
    with server:
        asked = Here(server, tmp_path).do(work)
    shown = {one.replica: one for one in reports(display)[0].replicas}
    assert asked.remark.startswith("By metrics.k8s.io: means of the last seconds")
    for one in asked.replicas:
        assert one == shown[one.replica]
        if one.replica.index == 5:
            assert (one.fault, one.awaited, one.memory) == ("it is not measured yet", True, None)
        else:
            assert one.cpu == pytest.approx(0.25, abs=1e-6)
            assert one.memory == (90 + one.replica.index) * MI
            assert (one.peak, one.limit) == (None, 256 * MI)
    assert len(asked.replicas) == 17
    assert "%usage" not in display.notices


@pytest.mark.parametrize(
    ("metrics", "forbidden", "why"),
    [
        (None, False, "the cluster has no metrics (metrics.k8s.io)"),
        (lambda pod: (0, 0), True, "you may not list pods.metrics.k8s.io in team"),
        (api_metrics.unavailable, False, "the cluster's metrics do not answer"),
    ],
    ids=["no server", "no right", "does not answer"],
)
def test_why_nothing_measures_many_replicas(
    server: ApiServer,
    tmp_path: Path,
    metrics: api_metrics.Metrics | None,
    forbidden: bool,
    why: str,
) -> None:
    display = Recorder()

    async def work(session: Session, backend: KubernetesBackend) -> CiaoError:
        cell = asyncio.ensure_future(run(session, MANY, display, tmp_path))
        await display.until("begins", replica="worker-16")
        assert display.job
        with pytest.raises(BackendError) as found:
            await query.usage(backend, display.job)
        cell.cancel()
        await asyncio.gather(cell, return_exceptions=True)
        return found.value

    server.metrics = metrics
    if forbidden:
        server.forbidden = frozenset({f"pods.{api_metrics.GROUP}"})
    with server:
        error = Here(server, tmp_path).do(work)
    too_many = "17 replicas are too many to enter each of them"
    assert error.message == f"what the replicas of mine use is not known: {too_many}, and {why}."


@pytest.mark.stands_for("faults")
def test_a_command_that_breaks_again_and_again_is_begun_again(
    server: ApiServer, tmp_path: Path
) -> None:
    begun = 0
    found: list[Usage] = []

    async def execute(pod: str, channel: web.WebSocketResponse) -> None:
        nonlocal begun
        begun += 1
        await channel.receive()  # the text of the program
        if begun <= BROKEN:  # no status: its connection is cut
            return
        for number in range(1, 4):
            line = json.dumps({"memory": number * MI, "limit": 256 * MI})
            await channel.send_bytes(b"\x01" + line.encode() + b"\n")
        async for _ in channel:
            pass

    async def work(session: Session, backend: KubernetesBackend) -> None:
        display = Recorder()
        cell = asyncio.ensure_future(run(session, ONE, display, tmp_path))
        await display.until("begins")
        assert display.job
        watch = MemoryWatch(
            display.job, backend, {Replica("worker", 0): ""}, first=0.0, again=0.01,
            usage=found.append,
        )  # fmt: skip
        async with watch.watching():
            watch.note(next(one for one in reversed(display.events) if isinstance(one, Status)))
            await wait(lambda: len(found) == 3)
        cell.cancel()
        await asyncio.gather(cell, return_exceptions=True)

    server.execute = execute
    with server:
        Here(server, tmp_path).do(work)
    assert [one.memory for one in found] == [MI, 2 * MI, 3 * MI]
