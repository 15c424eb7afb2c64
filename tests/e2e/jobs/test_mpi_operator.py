"""MPI jobs on a cluster with mpi-operator: MPIJobs of v2beta1, whose ranks are started by ssh."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

from ciao_kernel.errors import JobFailed
from ciao_kernel.model import Replica, State
from tests.cluster import mpi_operator
from tests.cluster.cluster import Cluster
from tests.cluster.layout import layout
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e import namespaces
from tests.e2e.jobs.conftest import Team, rules
from tests.e2e.jobs.test_mpi import (
    ENDS,
    FAILS,
    HEADER,
    WAITS,
    gives_values_of_rank_0,
    has_exit_code_and_variables,
    left,
)
from tests.helpers import digits
from tests.helpers.jobs import Ended, Recorder, wait

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.second("operators"),
    pytest.mark.xdist_group("mpi-operator"),
]


@pytest.fixture(scope="module")
def second_cluster(raisable: None) -> Iterator[Cluster]:
    """A cluster beside the one of all other tests, lowered afterwards unless it was up."""
    made = Cluster(layout("mpi"))
    if not (was_up := made.node.pid is not None):
        made.up(["mpi_operator"])
        mpi_operator.put(made.at, made.kubectl)
    yield made
    if not was_up:
        made.down()


@pytest.fixture
def namespace(second_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    yield from namespaces.fresh(second_cluster, request)


def run(team: Team, cell: str, **options: object) -> Ended:
    images = {"mpi": team.namespace.cluster.image("mpi-ssh")}
    return team.run(HEADER + cell, images=images, **options)  # type: ignore[arg-type]


def test_ranks_train_one_model_in_the_workers(team: Team) -> None:
    ended = run(team, f"%output=accuracy,w\n{digits.MPI}")
    assert ended.error is None, ended.error
    assert "an MPIJob of mpi-operator (v2beta1)" in ended.display.notices
    said = {one: ended.display.data(one).decode() for one in ended.display.replicas}
    assert set(said) == {"worker-0", "worker-1"}, said  # ssh and mpirun have nothing to say
    line = r"rank (\d) of 4 on (\S+): accuracy (0\.\d+)"
    told = {one: re.findall(line, text) for one, text in said.items()}
    for replica, ranks in (("worker-0", ["0", "1"]), ("worker-1", ["2", "3"])):
        assert sorted(rank for rank, _, _ in told[replica]) == ranks, said
        assert {host for _, host, _ in told[replica]} == {f"{ended.job.name}-{replica}"}
    (accuracy,) = {float(number) for found in told.values() for _, _, number in found}
    assert accuracy > 0.8
    assert {one.state for one in ended.display.status.replicas} == {State.SUCCEEDED}
    gives_values_of_rank_0(ended)


def test_the_worker_of_the_rank_that_failed_is_named_with_its_traceback(team: Team) -> None:
    ended = run(team, FAILS)
    assert isinstance(ended.error, JobFailed)
    assert "worker-1 ended with exit code 1: ValueError: bad shard" in ended.error.message
    last = ended.display.status
    assert (last.state, str(last.decided_by)) == (State.FAILED, "worker-1")


def test_an_exit_code_reaches_the_cell_and_variables_reach_the_ranks(team: Team) -> None:
    ended = run(team, f"%envvar=EPOCHS='3 $(A)'\n%args=--x\n{ENDS}")
    has_exit_code_and_variables(ended)


def test_a_running_job_is_described_and_a_stop_removes_it(team: Team) -> None:
    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        for replica in ("worker-0", "worker-1"):
            await display.until("up 4\nup 4\n", replica=replica, patience=180)
        details = await asyncio.to_thread(team.details)
        assert dict(details.facts)["kind"] == "MPIJob"
        assert dict(details.facts)["kept when over"] == "until `ciao delete`"
        assert details.pods[Replica("launcher", 0)].startswith(f"{display.job.name}-launcher-")
        work.cancel()

    with pytest.raises(asyncio.CancelledError):
        run(team, WAITS, during=during)
    until(lambda: left(team) == [], "everything to be gone", 60)


def test_a_launcher_that_the_cluster_refuses_says_why(team: Team) -> None:
    """The events are about its Job. A user who may not read quotas does not know it before."""
    team.user.allow(*(one for one in rules() if "resourcequotas" not in one.resources))
    meta, hard = {"name": "workers"}, {"hard": {"pods": "2"}}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": hard}
    team.namespace.create_objects(quota)

    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await wait(lambda: "exceeded quota: workers" in "".join(display.reasons("launcher")), 180)
        work.cancel()

    with pytest.raises(asyncio.CancelledError):
        run(team, WAITS, during=during)
    until(lambda: left(team) == [], "everything to be gone", 60)
