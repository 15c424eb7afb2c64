"""TrainJobs with their own runtimes in the queue of deploy/team/kueue.

Kueue 0.15 writes back a TrainJob as Trainer 2.1 has it, without the `runtimePatches` of one with a
ClusterTrainingRuntime, which then never starts: docs/queues.md.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ciao_kernel.model import State
from tests.cluster.cluster import Cluster
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import TRAIN, Team, made, rules
from tests.e2e.policies import kueue
from tests.helpers.jobs import Ended, Recorder, wait

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.second("gateway"),
    pytest.mark.xdist_group("policies"),
]
PATIENCE = 180.0
LONG = """\
import os, time
print("here", flush=True)
while not os.path.exists("/tmp/end"):
    time.sleep(0.1)
print("done")
"""


@pytest.fixture(scope="module")
def trained(queues: Cluster, with_trainer: None) -> Cluster:
    """The cluster with Kueue has Trainer too."""
    queues.trainer()
    kueue.restart(queues)
    return queues


@pytest.fixture
def namespace(trained: Cluster, queue_namespace: Namespace) -> Namespace:
    """A team's namespace with the folder of its queue."""
    return queue_namespace


def cell(name: str, *directives: str) -> str:
    """Two of them do not fit into the queue's 100 MiB."""
    header = ["%framework=python", "%worker=2;%memory=40Mi", "%api=trainer", "%queue=default"]
    return "\n".join([f"%name={name}", *header, *directives, LONG])


def pods(team: Team, job: str) -> list[str]:
    found = team.namespace.get("pods", "-l", f"jobset.sigs.k8s.io/jobset-name={job}")["items"]
    return [one["metadata"]["name"] for one in found]


def end(team: Team, job: str) -> None:
    for pod in pods(team, job):
        team.namespace.touch(pod, "/tmp/end")


def test_a_train_job_waits_until_the_queue_has_room(
    namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = made(namespace, tmp_path, monkeypatch, rules(TRAIN))
    team.images["python"] = team.images["pytorch"]
    started = team.run(cell("first", "%detach"))
    assert started.error is None, started.error
    until(lambda: len(pods(team, "first")) == 2, "the first job to be admitted", PATIENCE)
    for pod in pods(team, "first"):
        namespace.wait_for_pod(pod, "Running")

    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await wait(lambda: "second waits in queue default" in display.notices, PATIENCE)
        assert (display.status.state, display.status.reason) == (State.PENDING, "Queued")
        assert await asyncio.to_thread(pods, team, "second") == []
        await asyncio.to_thread(end, team, "first")
        for one in ("worker-0", "worker-1"):
            await display.until("here", replica=one, patience=PATIENCE)
        await asyncio.to_thread(end, team, "second")

    ended = team.run(cell("second"), during=during)
    assert ended.error is None, ended.error
    for one in ("worker-0", "worker-1"):
        assert ended.display.data(one) == b"here\ndone\n"
    assert "queue default admitted second after" in ended.display.notices
    assert "was changed by" not in ended.display.notices
