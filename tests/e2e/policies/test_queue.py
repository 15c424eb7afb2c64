"""Cells whose jobs wait in the queue of deploy/team/kueue, with a real Kueue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ciao_kernel.errors import DirectiveError, JobFailed
from ciao_kernel.model import State
from ciao_kernel.session.session import Session
from tests.cluster.cluster import Cluster
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.gateway.place import DEPLOY
from tests.e2e.jobs.conftest import Team, made, rules
from tests.e2e.policies import kueue
from tests.helpers.jobs import Ended, Recorder, wait

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.second("gateway"),
    pytest.mark.xdist_group("policies"),
]
PATIENCE = 120.0
QUEUE = "%queue=default"
LONG = """\
import os, time
print("here", flush=True)
while not os.path.exists("/tmp/end"):
    time.sleep(0.1)
"""


@pytest.fixture
def namespace(queue_namespace: Namespace) -> Namespace:
    """A team's namespace with the folder of its queue."""
    return queue_namespace


@pytest.fixture
def team(namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    """A user with the Role, who has no right to Kueue's objects."""
    return made(namespace, tmp_path, monkeypatch, rules())


def cell(name: str, *directives: str, memory: str = "64Mi") -> str:
    head = [f"%name={name}", "%framework=tensorflow", f"%worker=1;%memory={memory}"]
    return "\n".join([*head, *directives, LONG])


async def end(team: Team, pod: str) -> None:
    await asyncio.to_thread(team.namespace.touch, pod, "/tmp/end")


def running(team: Team, job: str, *directives: str) -> None:
    """Start a job that the cell does not follow, and see it run."""
    ended = team.run(cell(job, "%detach", QUEUE, *directives))
    assert ended.error is None, ended.error
    team.namespace.wait_for_pod(f"{job}-worker-0", "Running")


def phases(team: Team, job: str) -> list[str]:
    found = team.namespace.get("pods", "-l", f"training.kubeflow.org/job-name={job}")["items"]
    return [one["status"]["phase"] for one in found]


def passed(created: str) -> None:
    """Wait for the next second: Kueue's order of jobs that were created in one is arbitrary."""
    end = datetime.fromisoformat(created) + timedelta(seconds=1)
    until(lambda: datetime.now(UTC) >= end, "the next second", 5)


def test_a_job_is_admitted_by_the_namespaces_queue_without_a_word(team: Team) -> None:
    """No label: the folder's queue is the namespace's default."""
    seen: list[str] = []

    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await wait(lambda: b"here" in display.data("worker-0"), PATIENCE)
        job = await asyncio.to_thread(team.namespace.get, "tfjob/one")
        seen.append(job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"])
        await end(team, "one-worker-0")

    ended = team.run(cell("one"), during=during)
    assert ended.error is None, ended.error
    assert seen == ["default"]
    assert ended.display.notices == ""


def test_a_job_over_the_quota_says_why_it_waits_and_runs_when_there_is_room(team: Team) -> None:
    running(team, "first")

    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await wait(lambda: "second waits in queue default" in display.notices, PATIENCE)
        await wait(
            lambda: "insufficient unused quota for memory" in display.status.message, PATIENCE
        )
        assert (display.status.state, display.status.word) == (State.PENDING, "Queued")
        assert phases(team, "second") == []
        await end(team, "first-worker-0")
        await wait(lambda: b"here" in display.data("worker-0"), PATIENCE)
        await end(team, "second-worker-0")

    ended = team.run(cell("second", QUEUE), during=during)
    assert ended.error is None, ended.error
    assert ended.result
    assert ended.result.state is State.SUCCEEDED
    said = ended.display.notices
    assert "28Mi more needed" in said
    assert "queue default admitted second after" in said
    assert "was changed by" not in said
    delete(team)


def test_a_waiting_job_that_is_stopped_leaves_nothing(team: Team) -> None:
    running(team, "first")

    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await wait(lambda: "second waits in queue default" in display.notices, PATIENCE)
        work.cancel()

    with pytest.raises(asyncio.CancelledError):
        team.run(cell("second"), during=during)
    until(lambda: team.namespace.find("tfjob/second") is None, "the waiting job to go", 60)
    assert phases(team, "first") == ["Running"]
    delete(team)


def test_a_job_of_higher_priority_takes_the_place_and_gives_it_back(team: Team) -> None:
    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await wait(lambda: b"here" in display.data("worker-0"), PATIENCE)
        await asyncio.to_thread(running, team, "high", "%priority=high")
        await wait(lambda: "low has lost its place" in display.notices, PATIENCE)
        await end(team, "high-worker-0")
        await wait(lambda: "queue default admitted low after" in display.notices, PATIENCE)
        await wait(lambda: display.data("worker-0").count(b"here") == 2, PATIENCE)
        await end(team, "low-worker-0")

    ended = team.run(cell("low", QUEUE), during=during)
    assert ended.error is None, ended.error
    assert ended.display.data("worker-0").count(b"here") == 2
    delete(team)


def test_a_job_that_the_queue_can_never_hold_ends_the_cell_and_is_removed(team: Team) -> None:
    ended = team.run(cell("large", QUEUE, memory="200Mi"))
    assert isinstance(ended.error, JobFailed)
    assert "large can never run in queue default" in ended.error.message
    assert "maximum capacity" in ended.error.message
    assert team.left() == []


@pytest.fixture
def reader(namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    """A user who may read queues too."""
    more = ("queue-role", "jobs-role")
    own = [rule for name in more for rule in rules(DEPLOY / f"rbac/{name}.yaml")]
    return made(namespace, tmp_path, monkeypatch, [*rules(), *own])


def test_a_queue_that_does_not_exist_is_refused(reader: Team) -> None:
    ended = reader.run(cell("lost", "%queue=nosuch"))
    assert isinstance(ended.error, DirectiveError)
    assert "has no queue nosuch" in ended.error.message
    assert "It has default" in ended.error.hint
    assert reader.left() == []


def test_a_queue_that_goes_away_ends_the_cell(reader: Team) -> None:
    """Its label is not checked by ciao: anybody may have written it."""
    label = "%labels=kueue.x-k8s.io/queue-name=nosuch"
    ended = reader.run(cell("lost", label))
    assert isinstance(ended.error, JobFailed)
    assert "can never run in queue nosuch: LocalQueue nosuch doesn't exist" in ended.error.message
    assert reader.left() == []


@pytest.fixture
def places(reader: Team, queues: Cluster) -> Iterator[None]:
    """Kueue tells places, until before the namespace goes."""
    with kueue.places(queues):
        yield


def test_a_waiting_job_says_its_place_in_line(reader: Team, places: None) -> None:
    running(reader, "first")
    second = reader.run(cell("second", "%detach", QUEUE))
    assert second.error is None, second.error
    passed(reader.namespace.get("tfjob/second")["metadata"]["creationTimestamp"])

    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await wait(lambda: "third waits in queue default" in display.notices, PATIENCE)
        start = "waits in queue default, {} in line: couldn't assign flavors"
        await wait(lambda: display.status.message.startswith(start.format("2nd")), PATIENCE)
        # Not by an end of the first: Kueue may then admit the third before the second.
        await asyncio.to_thread(reader.namespace.kubectl, "delete", "tfjob/second")
        await wait(lambda: display.status.message.startswith(start.format("1st")), PATIENCE)
        await end(reader, "first-worker-0")
        await wait(lambda: b"here" in display.data("worker-0"), PATIENCE)
        await end(reader, "third-worker-0")

    ended = reader.run(cell("third", QUEUE), during=during)
    assert ended.error is None, ended.error
    assert ended.result
    assert ended.result.state is State.SUCCEEDED
    delete(reader)


def test_a_kind_that_kueue_does_not_manage_says_that_it_runs_at_once(reader: Team) -> None:
    ended = reader.run(f"%name=free;%framework=tensorflow\n%worker=1\n%api=job\n{QUEUE}\nprint(1)")
    assert ended.error is None, ended.error
    assert "queue default has no effect: Kueue does not manage Jobs" in ended.display.notices
    delete(reader)


def delete(team: Team) -> None:
    """Delete all jobs as a user does; their Workloads go with them."""

    async def work(session: Session) -> None:
        for job, _ in await session.jobs():
            await session.backend("kubernetes").delete(job)

    team._ask(work)
    until(lambda: team.left() == [], "the jobs to be gone", 60)
    workloads = "workloads.kueue.x-k8s.io"
    until(lambda: team.namespace.get(workloads)["items"] == [], "the Workloads to be gone", 60)
