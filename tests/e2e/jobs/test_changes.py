"""What somebody else does to a job while a cell follows it is said in the cell."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.errors import ClusterFault
from ciao_kernel.model import State
from ciao_kernel.plugins import Suspending
from ciao_kernel.session.session import Session
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.gateway.place import DEPLOY
from tests.e2e.jobs.conftest import Team, made, rules
from tests.helpers.jobs import PATIENCE, Ended, Recorder, wait

CELL = (
    "%framework=tensorflow\n%name=mine\n%worker=1\n"
    "import os, pathlib, time\nprint('here', os.environ['CIAO_REPLICA'], flush=True)\n"
    "while not pathlib.Path('/tmp/end').exists(): time.sleep(0.1)\n"
)


async def patch(team: Team, spec: dict[str, Any]) -> None:
    api, name = team.namespace.cluster.api, team.namespace.name
    await asyncio.to_thread(api.patch, name, "tfjob/mine", {"spec": spec})


async def says(display: Recorder, replica: str) -> None:
    await wait(lambda: b"here" in display.data(replica), PATIENCE)


def pods(team: Team) -> list[Any]:
    return list(team.namespace.get("pods")["items"])


async def end(team: Team, pod: str) -> None:
    await asyncio.to_thread(team.namespace.touch, pod, "/tmp/end")


@pytest.mark.second("faults")
def test_a_job_that_is_scaled_goes_on_with_the_new_replica(team: Team) -> None:
    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await says(display, "worker-0")
        await patch(team, {"tfReplicaSpecs": {"Worker": {"replicas": 2}}})
        await says(display, "worker-1")
        await end(team, "mine-worker-0")

    ended = team.run(CELL, during=during)
    assert ended.error is None, ended.error
    assert "mine was changed by kubectl-patch: worker was scaled from 1 to 2." in (
        ended.display.notices
    )
    assert [str(one.replica) for one in ended.display.status.replicas] == ["worker-0", "worker-1"]


def test_a_cell_follows_a_job_that_a_command_suspends_and_resumes(
    namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a user with the documented rights."""
    rights = [*rules(), *rules(DEPLOY / "rbac/suspend-role.yaml")]
    team = made(namespace, tmp_path, monkeypatch, rights)

    async def command(verb: str) -> str:
        done = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "ciao_kernel.cli", verb, "mine", "-n", namespace.name,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        return (await done.communicate())[0].decode()

    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await says(display, "worker-0")
        assert "mine is suspended: `ciao resume mine" in await command("suspend")
        await wait(lambda: "pods are deleted until it is resumed" in display.notices, PATIENCE)
        assert "mine is suspended already" in await command("suspend")
        assert "mine is resumed" in await command("resume")
        await wait(lambda: display.data("worker-0").count(b"here") == 2, PATIENCE)
        await end(team, "mine-worker-0")

    ended = team.run(CELL, during=during)
    assert ended.error is None, ended.error
    assert "it is resumed" in ended.display.notices
    assert "is over" in asyncio.run(command("suspend"))


@pytest.mark.second("faults")
def test_without_the_right_a_job_cannot_be_suspended(team: Team) -> None:
    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await says(display, "worker-0")
        with pytest.raises(ClusterFault, match=r"you may not suspend jobs .* patch tfjobs"):
            await asyncio.to_thread(team._ask, suspend)
        await end(team, "mine-worker-0")

    async def suspend(session: Session) -> None:
        backend, job, _ = await session.find("mine")
        assert isinstance(backend, Suspending)
        await backend.set_suspended(job, suspended=True)

    assert team.run(CELL, during=during).error is None


@pytest.mark.second("faults")
def test_a_job_that_is_suspended_waits_until_it_is_resumed(team: Team) -> None:
    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await says(display, "worker-0")
        await patch(team, {"runPolicy": {"suspend": True}})
        await wait(lambda: display.status.reason == "Suspended", PATIENCE)
        await wait(lambda: "pods are deleted until it is resumed" in display.notices, PATIENCE)
        # Before they are gone the operator would take their end for a failure.
        await asyncio.to_thread(until, lambda: not pods(team), "the pod to be gone", 60)
        await wait(lambda: display.status.replicas[0].reason == "deleted", PATIENCE)
        await patch(team, {"runPolicy": {"suspend": False}})
        await wait(lambda: display.data("worker-0").count(b"here") == 2, PATIENCE)
        await end(team, "mine-worker-0")

    ended = team.run(CELL, during=during)
    assert ended.error is None, ended.error
    assert ended.result
    assert ended.result.state is State.SUCCEEDED
    assert "it is resumed" in ended.display.notices
