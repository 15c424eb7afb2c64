"""Elastic PyTorch jobs on this machine, with the real torchrun."""

from __future__ import annotations

import pytest

from ciao_kernel.errors import JobFailed
from ciao_kernel.model import State
from tests.helpers.elastic import trains, tries
from tests.helpers.jobs import Place

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.second("packages")
@pytest.mark.parametrize("lost", ["worker-1", "worker-0"])
def test_a_job_survives_a_killed_process_and_a_killed_torchrun(jobs: Place, lost: str) -> None:
    """Also of worker-0, which holds the store of the rendezvous."""
    header = "%framework=pytorch\n%worker=2\n%min=1\n%max=4\n"
    ended = jobs.run(header + trains(lost=lost))
    assert ended.error is None, ended.error
    assert ended.display.status.state is State.SUCCEEDED
    for one in ("worker-0", "worker-1"):
        log = ended.log(one)
        assert ended.display.data(one) == log
        assert log.count(b"has trained") == 1
        steps = tries(log, one)
        assert len(steps) >= 3, log
        assert all(part == list(range(part[0], part[-1] + 1)) for part in steps if part)
        assert steps[-1][-1] == 20
        assert steps[-1][0] >= 10  # the checkpoint was loaded
    restarts = {str(one.replica): one.restarts for one in ended.display.status.replicas}
    assert restarts[lost] == 1
    assert f"{lost} was restarted (SIGKILL), try 2" in ended.display.notices


def test_a_dry_run_shows_that_lost_replicas_are_started_again_without_limit(jobs: Place) -> None:
    ended = jobs.run("%framework=pytorch\n%worker=2\n%min=1\n%backoffLimit=1\n%dryrun\npass\n")
    text = ended.display.notices
    assert "by a signal, is started again; no limit" in text
    assert "PET_MAX_RESTARTS=1" in text
    assert "PET_NNODES=1:2" in text


@pytest.mark.second("packages")
def test_a_program_that_always_fails_ends_the_job_after_its_restarts(jobs: Place) -> None:
    header = "%framework=pytorch\n%worker=2\n%min=1\n%backoffLimit=1\n"
    ended = jobs.run(header + "print('try')\nraise ValueError('never right')\n")
    assert isinstance(ended.error, JobFailed)
    assert "ValueError: never right" in ended.error.message
    assert "\n".join(ended.error.traceback).count("ValueError: never right") == 1
    logs = [ended.log(one).decode() for one in ("worker-0", "worker-1")]
    assert max(log.count("try\n") for log in logs) == 2
    assert {one.restarts for one in ended.display.status.replicas} == {0}
