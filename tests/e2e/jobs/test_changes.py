"""What somebody else does to a job while a cell follows it is said in the cell."""

from __future__ import annotations

import asyncio
from typing import Any

from ciao_kernel.model import State
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import Team
from tests.helpers.jobs import Ended, Recorder, wait

PATIENCE = 60.0
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
    await asyncio.to_thread(team.namespace.kubectl, "exec", pod, "--", "touch", "/tmp/end")


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
