"""MPI jobs where no operator knows them: as Indexed Jobs and TrainJobs, with the real Open MPI."""

from __future__ import annotations

import asyncio
import contextlib
import re
from functools import partial
from pathlib import Path

import pytest

from ciao_kernel.errors import JobFailed
from ciao_kernel.model import State
from tests.cluster.errors import ClusterError
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import JOBS, TRAIN, Team, leftovers, made, rules
from tests.e2e.jobs.test_mpi import (
    ENDS,
    FAILS,
    WAITS,
    gives_values_of_rank_0,
    has_exit_code_and_variables,
    run,
)
from tests.helpers import digits
from tests.helpers.jobs import Recorder

pytestmark = [
    pytest.mark.second("operators"),
    pytest.mark.frameworks,
    pytest.mark.slow,
    pytest.mark.xdist_group("mpi"),  # one at a time: two starve each other
    pytest.mark.usefixtures("with_mpi"),
]
left = partial(leftovers, kinds="trainjobs,trainingruntimes,jobs,services,pods,configmaps")


@pytest.fixture(params=["job", "trainer"])
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def team(
    trainer: None, api: str, namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Team:
    """A user with the Role for jobs of this API and nothing more."""
    return made(namespace, tmp_path, monkeypatch, rules(JOBS if api == "job" else TRAIN))


def test_ranks_train_one_model_in_the_workers(team: Team, api: str) -> None:
    ended = run(team, f"%api={api}\n%memory=800Mi\n%output=accuracy,w\n{digits.MPI}")
    assert ended.error is None, ended.error
    said = {one: ended.display.data(one).decode() for one in ended.display.replicas}
    assert set(said) == {"worker-0", "worker-1"}, said  # mpirun has nothing to say
    told = {
        one: re.findall(r"rank (\d) of 4 on (\S+): accuracy (0\.\d+)", said[one]) for one in said
    }
    assert {one: sorted(rank for rank, _, _ in found) for one, found in told.items()} == {
        "worker-0": ["0", "1"],
        "worker-1": ["2", "3"],
    }
    pods = {one: {host for _, host, _ in found} for one, found in told.items()}
    name, part = ended.job.name, "" if api == "job" else "-worker-0"
    assert pods == {f"worker-{index}": {f"{name}{part}-{index}"} for index in (0, 1)}
    gives_values_of_rank_0(ended)
    (accuracy,) = {float(number) for found in told.values() for _, _, number in found}
    assert accuracy > 0.8
    assert ended.display.status.state is State.SUCCEEDED


def test_the_worker_of_the_rank_that_failed_is_named_with_its_traceback(
    team: Team, api: str
) -> None:
    ended = run(team, f"%api={api}\n{FAILS}")
    assert isinstance(ended.error, JobFailed)
    assert "worker-1 ended with exit code 1: ValueError: bad shard" in ended.error.message
    assert any("in train" in line for line in ended.error.traceback)
    assert ended.display.data("launcher-0") == b""


def test_an_exit_code_reaches_the_cell_and_variables_reach_the_ranks(team: Team, api: str) -> None:
    text = f"%api={api}\n%envvar=EPOCHS='3 $(A)'\n%args=--x\n{ENDS}"
    has_exit_code_and_variables(run(team, text))


def test_a_stop_removes_all_of_it(team: Team, api: str) -> None:
    async def during(display: Recorder, work: asyncio.Task[object]) -> None:
        for replica in ("worker-0", "worker-1"):
            await display.until("up 4\nup 4\n", replica=replica, patience=180)
        work.cancel()

    with pytest.raises(asyncio.CancelledError):
        run(team, f"%api={api}\n{WAITS}", during=during)
    until(lambda: left(team) == [], "everything to be gone", 120)


def test_all_ends_with_a_killed_launcher(team: Team, api: str) -> None:
    async def during(display: Recorder, work: asyncio.Task[object]) -> None:
        await display.until("up 4\nup 4\n", replica="worker-1", patience=180)
        launcher = f"{display.job.name}-2" if api == "job" else f"{display.job.name}-launcher-0-0"
        names = [pod["metadata"]["name"] for pod in team.namespace.get("pods")["items"]]
        (pod,) = [name for name in names if name.startswith(launcher)]
        kill = "kill -9 `grep -l python /proc/[0-9]*/comm | cut -d/ -f3`"
        with contextlib.suppress(ClusterError):  # the container may take the shell along
            await asyncio.to_thread(team.namespace.kubectl, "exec", pod, "--", "sh", "-c", kill)

    ended = run(team, f"%api={api}\n{WAITS}", during=during)
    assert isinstance(ended.error, JobFailed)
    assert "launcher-0" in ended.error.message
