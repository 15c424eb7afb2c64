"""Elastic PyTorchJobs: a killed process, a deleted pod, a program that always fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ciao_kernel.errors import JobFailed
from ciao_kernel.model import State
from tests.cluster.namespace import Namespace
from tests.e2e.jobs.conftest import JOBS, TRAIN, Team, made, rules
from tests.helpers.elastic import trains, tries
from tests.helpers.jobs import Ended, Recorder

pytestmark = [
    pytest.mark.second("operators"),
    pytest.mark.frameworks,
    pytest.mark.slow,
    pytest.mark.xdist_group("training"),  # one at a time: two starve each other
    pytest.mark.usefixtures("with_frameworks"),
]
HEADER = "%framework=pytorch\n%worker=2\n%min=1\n%max=3\n"


def images(namespace: Namespace) -> dict[str, str]:
    return {"pytorch": namespace.cluster.image("pytorch")}


@pytest.mark.parametrize("lost", ["worker-1", "worker-0"])
def test_a_job_survives_a_killed_process_and_a_deleted_pod(
    team: Team, claim: str, lost: str
) -> None:
    """Also of worker-0, which holds the store of the rendezvous."""

    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await display.until("step 10", replica=lost, patience=180)
        assert display.job
        pod = f"pod/{display.job.name}-{lost}"
        await asyncio.to_thread(team.namespace.kubectl, "delete", pod, "--wait=false")

    survives(team, HEADER, claim, lost, during)


def survives(
    team: Team,
    header: str,
    claim: str,
    lost: str,
    during: Callable[[Recorder, asyncio.Task[Ended]], Awaitable[None]],
) -> None:
    """Run a job that loses a process by itself and a pod by `during`; nothing is trained twice."""
    header = f"{header}%volume={claim}:data\n%envvar=CHECKPOINTS=data\n"
    ended = team.run(header + trains(waits=10), during=during, images=images(team.namespace))
    assert ended.error is None, ended.error
    assert ended.display.status.state is State.SUCCEEDED
    for one in ("worker-0", "worker-1"):
        log = ended.display.data(one)
        steps = tries(log, one)
        assert log.count(b"has trained") == 1
        assert len(steps) >= 2, log
        assert all(part == list(range(part[0], part[-1] + 1)) for part in steps if part)
        assert steps[-1][-1] == 20
        assert steps[-1][0] >= 10  # the checkpoint was loaded
    restarts = {str(one.replica): one.restarts for one in ended.display.status.replicas}
    assert restarts[lost] == 1
    assert ended.display.notices.count(f"{lost} was restarted") == 1


@pytest.mark.parametrize("lost", ["worker-1", "worker-0"])
@pytest.mark.parametrize("api", ["job", "trainer"])
def test_the_same_without_the_operator(
    trainer: None,
    namespace: Namespace,
    claim: str,
    api: str,
    lost: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    team = made(namespace, tmp_path, monkeypatch, rules(JOBS if api == "job" else TRAIN))

    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await display.until("step 10", replica=lost, patience=180)
        index = lost.removeprefix("worker-")
        start = f"{display.job.name}-{index if api == 'job' else f'worker-0-{index}'}-"
        names = [pod["metadata"]["name"] for pod in namespace.get("pods")["items"]]
        (pod,) = [name for name in names if name.startswith(start)]
        await asyncio.to_thread(namespace.kubectl, "delete", f"pod/{pod}", "--wait=false")

    # The Job controller takes its time before it makes the pod again; alone worker-0 would end.
    header = HEADER.replace("%min=1", "%min=2")
    survives(team, f"{header}%api={api}\n", claim, lost, during)


@pytest.mark.parametrize("api", ["job", "trainer"])
def test_a_program_that_fails_ends_the_job_without_the_operator_too(
    trainer: None,
    namespace: Namespace,
    api: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    team = made(namespace, tmp_path, monkeypatch, rules(JOBS if api == "job" else TRAIN))
    failed = team.run(
        f"{HEADER}%api={api}\n%backoffLimit=0\nraise ValueError('never right')\n",
        images=images(namespace),
    )
    assert isinstance(failed.error, JobFailed)
    assert "ValueError: never right" in failed.error.message


def test_a_program_that_always_fails_ends_the_job_after_its_restarts(team: Team) -> None:
    header = f"{HEADER}%backoffLimit=1\n"
    program = "print('try')\nraise ValueError('never right')\n"
    ended = team.run(header + program, images=images(team.namespace))
    assert isinstance(ended.error, JobFailed)
    assert "ValueError: never right" in ended.error.message
    assert "\n".join(ended.error.traceback).count("ValueError: never right") == 1
    logs = [ended.display.data(one).decode() for one in ("worker-0", "worker-1")]
    assert max(log.count("try\n") for log in logs) == 2
    assert {one.restarts for one in ended.display.status.replicas} == {0}


GROWS = """\
import os
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
world = torch.ones(1)
while True:
    world.fill_(1)
    dist.all_reduce(world)
    if world == 3:
        open("/tmp/grown", "w").close()
    print("world", int(world), flush=True)
    if world == 2 and os.path.exists("/tmp/grown"):
        break
    time.sleep(0.5)
"""


@pytest.mark.parametrize("api", ["v1", "job"])
def test_a_job_that_is_scaled_trains_with_a_worker_more_and_with_one_less(
    namespace: Namespace,
    api: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A TrainJob cannot be scaled, as its cell says."""
    team = made(namespace, tmp_path, monkeypatch, rules(JOBS) if api == "job" else rules())

    def scale(job: str, count: int) -> None:
        spec = json.dumps({"spec": {"completions": count, "parallelism": count}})
        patch = ("patch", f"job/{job}", "--type=merge", "-p", spec)
        by_operator = ("scale", f"pytorchjob/{job}", f"--replicas={count}")
        namespace.kubectl(*(patch if api == "job" else by_operator))

    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await display.until("world 2", replica="worker-1", patience=180)
        await asyncio.to_thread(scale, display.job.name, 3)
        await display.until("world 3", replica="worker-2", patience=180)
        await asyncio.to_thread(scale, display.job.name, 2)

    header = HEADER.replace("%min=1", f"%min=2\n%api={api}")
    ended = team.run(header + GROWS, during=during, images=images(namespace))
    assert ended.error is None, ended.error
    assert ended.display.status.state is State.SUCCEEDED
    for one in ("worker-0", "worker-1"):
        log = ended.display.data(one).decode()
        assert "world 3\n" in log
        assert log.endswith("world 2\n")
    assert "world 3\n" in ended.display.data("worker-2").decode()
    for change in ("scaled from 2 to 3", "scaled from 3 to 2"):
        assert ended.display.notices.count(change) == 1
