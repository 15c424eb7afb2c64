"""What pods use, by a real metrics server: for who may not enter pods, and for many replicas."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ciao_kernel.backends.kubernetes.backend import KubernetesBackend
from ciao_kernel.display import usage_table
from ciao_kernel.errors import BackendError
from ciao_kernel.model.usage import Usage, UsageReport
from ciao_kernel.session.inspection import query
from tests.cluster.cluster import Cluster
from tests.cluster.namespace import Namespace
from tests.e2e import namespaces
from tests.e2e.jobs.conftest import EXEC, RBAC, Team, made, rules
from tests.e2e.policies import metrics
from tests.helpers.jobs import Ended, Recorder, wait

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.second("gateway"),
    pytest.mark.xdist_group("policies"),
]
MI = 1024 * 1024
PATIENCE = 300.0
METRICS = RBAC / "metrics-role.yaml"
WORKS = """\
%framework=tensorflow
%worker={};%memory=256Mi
%usage=on
import os, time
kept = bytearray(64 << 20)
print("has it", flush=True)
while os.environ["CIAO_REPLICA"] == "worker-0":
    sum(range(1000))
time.sleep(1000)
"""
"""worker-0 keeps a processor busy, the others do not."""


@pytest.fixture(scope="module")
def metered(second_cluster: Cluster, with_metrics_server: None) -> Iterator[Cluster]:
    with metrics.served(second_cluster):
        yield second_cluster


@pytest.fixture
def namespace(metered: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    yield from namespaces.fresh(metered, request)


@pytest.fixture
def team(namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    return made(namespace, tmp_path, monkeypatch, rules())


def settled(found: dict[str, Usage], count: int) -> bool:
    """Whether all have come to their loops, and one of them is the busy one."""
    kept = [one for one in found.values() if one.memory and one.memory > 64 * MI]
    cpu = {name: one.cpu or 0.0 for name, one in found.items()}
    return len(kept) == count and max(cpu, key=lambda name: cpu[name]) == "worker-0"


@pytest.mark.parametrize(
    ("count", "may_enter"), [(2, False), (17, True)], ids=["no right", "many replicas"]
)
def test_the_metrics_of_a_cluster_measure_who_cannot_be_entered(
    team: Team, count: int, may_enter: bool
) -> None:
    team.user.allow(*rules(), *rules(METRICS), *(rules(EXEC) if may_enter else []))
    asked: list[UsageReport] = []
    seen: list[dict[str, Usage]] = []
    shown: list[Recorder] = []

    def newest(display: Recorder) -> dict[str, Usage]:
        reports = [event for event in display.events if isinstance(event, UsageReport)]
        return {str(one.replica): one for one in reports[-1].replicas} if reports else {}

    async def look(display: Recorder, work: asyncio.Task[Ended]) -> None:
        shown.append(display)
        await wait(lambda: work.done() or settled(newest(display), count), PATIENCE)
        assert not work.done(), work
        seen.append(newest(display))
        assert display.job
        backend = KubernetesBackend(team.settings())
        until = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(BackendError):  # the server has no numbers for a moment
                report = await query.usage(backend, display.job)
                if settled({str(one.replica): one for one in report.replicas}, count):
                    break
            assert time.monotonic() < until
            await asyncio.sleep(1)
        asked.append(report)
        await backend.close()
        work.cancel()

    with pytest.raises(asyncio.CancelledError):
        team.run(WORKS.format(count), during=look)
    (display,) = shown
    assert display.job
    print(usage_table.text(display.job, asked[0]))
    assert "%usage" not in display.notices
    assert asked[0].remark.startswith("By metrics.k8s.io: means of the last seconds")
    columns = {str(one.replica): one for one in asked[0].replicas}
    for found in (*seen, columns):
        assert len(found) == count
        for one in found.values():
            assert not one.fault
            assert 64 * MI < (one.memory or 0) < 256 * MI
            assert (one.peak, one.limit) == (None, 256 * MI)
