"""Cells as TrainJobs, by a user who has the Role for them and no right of the operator's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel import background
from ciao_kernel.errors import ClusterFault, JobFailed, SpecError
from ciao_kernel.model import Replica, State
from ciao_kernel.session.session import Session
from tests.cluster.faults.users import Rule
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import ROLE, TRAIN, Team, made, rules
from tests.e2e.jobs.test_indexed_jobs import MEETS, RANKS, SLEEPS
from tests.e2e.jobs.test_rights import verbs
from tests.helpers.jobs import Ended, Recorder

pytestmark = pytest.mark.second("operators")

TF = "%framework=tensorflow\n%api=trainer\n%ps=1\n%worker=2\n"
TORCH = "%framework=pytorch\n%api=trainer\n%runner=python\n%worker=1\n"
PLAIN = "%framework=python\n%worker=2\n"
GROUP = "trainer.kubeflow.org"


@pytest.fixture
def team(
    trainer: None, namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Team:
    """A user with the Role for TrainJobs and nothing more; python's image is small too."""
    found = made(namespace, tmp_path, monkeypatch, rules(TRAIN))
    found.images["python"] = found.images["pytorch"]
    return found


def left(team: Team) -> list[str]:
    """What ciao and Trainer made, and is still there."""
    kinds = "trainjobs,trainingruntimes,jobsets,jobs,services,endpointslices,pods,configmaps"
    found = team.namespace.get(kinds)["items"]
    names = sorted(f"{item['kind']}/{item['metadata']['name']}" for item in found)
    return [name for name in names if not name.endswith("/kube-root-ca.crt")]


def delete(team: Team) -> None:
    """Delete the only job as a user does; nothing may be left then."""

    async def work(session: Session) -> None:
        ((job, _),) = await session.jobs()
        await session.backend("kubernetes").delete(job)

    team._ask(work)
    until(lambda: left(team) == [], "everything to be gone", 60)


def test_workers_meet_their_ps_which_ends_with_the_job(team: Team) -> None:
    ended = team.run("%worker=2;%memory=300Mi\n" + TF.replace("%worker=2\n", "") + MEETS)
    assert ended.error is None, ended.error
    assert ended.result
    assert ended.result.state is State.SUCCEEDED
    assert ended.display.data("worker-0") == b"worker-0 got from the ps\n"
    assert ended.display.data("ps-0") == b"listening\n"
    assert ended.display.notices.count("runs as a TrainJob, with its own TrainingRuntime") == 1
    states = {str(one.replica): one.state for one in ended.result.replicas}
    assert states["worker-0"] is State.SUCCEEDED
    assert states["ps-0"] is State.STOPPED
    (job, now), *others = team.jobs()
    assert (job.resource, now.state, others) == ("trainjobs", State.SUCCEEDED, [])
    delete(team)
