"""MPI jobs on the cluster, with the real Open MPI: ranks run in the workers, and write there."""

from __future__ import annotations

import asyncio
import contextlib
import re

import pytest

from ciao_kernel.backends.kubernetes.backend import KubernetesBackend
from ciao_kernel.delivery.output import results
from ciao_kernel.errors import JobFailed
from ciao_kernel.model import Owner, Replica, State
from ciao_kernel.session.inspection import picture, query
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from tests.cluster.errors import ClusterError
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import EXEC, Team, rules
from tests.helpers import digits
from tests.helpers.jobs import Ended, Recorder

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.slow,
    pytest.mark.xdist_group("mpi"),  # one at a time: two starve each other
    pytest.mark.usefixtures("with_mpi"),
]
HEADER = "%framework=mpi\n%worker=2\n%slots=2\n"


def run(team: Team, cell: str, **options: object) -> Ended:
    images = {"mpi": team.namespace.cluster.image("mpi")}
    return team.run(HEADER + cell, images=images, **options)  # type: ignore[arg-type]


def gives_values_of_rank_0(ended: Ended) -> None:
    """The small ones of ``%output=accuracy,w``, by the termination message of a worker."""
    replica, values = results.of_job(ended.job, ended.display.status)
    assert str(replica) == "worker-0"
    assert values["accuracy"] > 0.8
    assert "w has 5,248 bytes, and a pod gives back 3,000 bytes at most" in values.fault("w")


@pytest.mark.stands_for("operators")
def test_ranks_train_one_model_in_the_workers(team: Team) -> None:
    ended = run(team, f"%output=accuracy,w\n{digits.MPI}")
    assert ended.error is None, ended.error
    said = {one: ended.display.data(one).decode() for one in ended.display.replicas}
    assert set(said) == {"worker-0", "worker-1"}, said  # mpirun has nothing to say
    line = r"rank (\d) of 4 on (\S+): accuracy (0\.\d+)"
    told = {one: re.findall(line, text) for one, text in said.items()}
    for replica, ranks in (("worker-0", ["0", "1"]), ("worker-1", ["2", "3"])):
        assert sorted(rank for rank, _, _ in told[replica]) == ranks, said
        assert {host for _, host, _ in told[replica]} == {f"{ended.job.name}-{replica}"}
        assert said[replica].count("\n") == 2, said
    (accuracy,) = {float(number) for found in told.values() for _, _, number in found}
    assert accuracy > 0.8
    assert {one.state for one in ended.display.status.replicas} == {State.SUCCEEDED}
    gives_values_of_rank_0(ended)


FAILS = """
import sys
from mpi4py import MPI

rank = MPI.COMM_WORLD.rank
def train():
    if rank == 2:
        raise ValueError("bad shard")
    MPI.COMM_WORLD.Barrier()
train()
"""


@pytest.mark.second("operators")
def test_the_worker_of_the_rank_that_failed_is_named_with_its_traceback(team: Team) -> None:
    ended = run(team, FAILS)
    assert isinstance(ended.error, JobFailed)
    assert "worker-1 ended with exit code 1: ValueError: bad shard" in ended.error.message
    assert [line for line in ended.error.traceback if "Cell, line" in line] == [
        "  Cell, line 13, in <module>",
        "  Cell, line 11, in train",
    ]
    last = ended.display.status
    assert (last.state, str(last.decided_by)) == (State.FAILED, "worker-1")
    assert ended.display.data("launcher-0") == b""


ENDS = """
import os, sys

print("epochs", os.environ["EPOCHS"], sys.argv[1:], os.environ["CIAO_REPLICA"])
sys.exit(3 if os.environ["RANK"] == "3" else 0)
"""


def has_exit_code_and_variables(ended: Ended) -> None:
    """Check what any operator must give a job of these ranks."""
    assert isinstance(ended.error, JobFailed)
    assert "worker-1 ended with exit code 3" in ended.error.message
    for replica in ("worker-0", "worker-1"):
        said = ended.display.data(replica).decode()
        assert f"epochs 3 $(A) ['--x'] {replica}\n" in said, said


@pytest.mark.second("operators")
def test_an_exit_code_reaches_the_cell_and_variables_reach_the_ranks(team: Team) -> None:
    ended = run(team, f"%envvar=EPOCHS='3 $(A)'\n%args=--x\n{ENDS}")
    has_exit_code_and_variables(ended)


WAITS = """
import time
from mpi4py import MPI

print("up", MPI.COMM_WORLD.allreduce(1))
time.sleep(1000)
"""


@pytest.mark.second("operators")
def test_workers_end_when_the_launcher_is_killed(team: Team) -> None:
    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await display.until("up 4\nup 4\n", replica="worker-1", patience=180)
        kill = "kill -9 `grep -l python /proc/[0-9]*/comm | cut -d/ -f3`"
        launcher = f"{display.job.name}-launcher"
        with contextlib.suppress(ClusterError):  # the container may take the shell along
            await asyncio.to_thread(
                team.namespace.kubectl, "exec", launcher, "--", "sh", "-c", kill
            )

    ended = run(team, WAITS, during=during)
    assert isinstance(ended.error, JobFailed)
    assert "launcher-0 was killed by SIGKILL" in ended.error.message

    def phases() -> set[str]:
        return {pod["status"]["phase"] for pod in team.namespace.get("pods")["items"]}

    until(lambda: phases() == {"Failed"}, "the workers to end", 150)
    log = team.namespace.kubectl("logs", f"{ended.job.name}-worker-0")
    assert "worker-0 ends: the launcher, or its connection, is lost." in log


def left(team: Team) -> list[str]:
    found = team.namespace.get("mpijobs,pods,configmaps")["items"]
    names = [item["metadata"]["name"] for item in found]
    return [name for name in names if name != "kube-root-ca.crt"]


@pytest.mark.second("operators")
def test_all_ranks_are_named_where_they_stand_and_a_stop_removes_the_job(team: Team) -> None:
    team.user.allow(*rules(), *rules(EXEC))
    texts = []

    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        for replica in ("worker-0", "worker-1"):
            await display.until("up 4\nup 4\n", replica=replica, patience=180)
        assert display.job
        backend = KubernetesBackend(team.settings())
        found = await query.ask(backend, display.job)
        texts.append(picture.text(display.job, found))
        await backend.close()
        work.cancel()

    with pytest.raises(asyncio.CancelledError):
        run(team, WAITS, during=during)
    until(lambda: left(team) == [], "everything to be gone", 60)
    for name in ("worker-0[0]", "worker-0[1]", "worker-1[0]", "worker-1[1]"):
        assert name in texts[0], texts[0]


@pytest.mark.second("operators")
def test_a_detached_job_is_described_followed_and_deleted(team: Team) -> None:
    ended = run(team, f"%name=mine\n%detach\n{WAITS}")
    assert ended.error is None, ended.error
    until(lambda: team.jobs()[0][1].state is State.RUNNING, "the job to run", 120)
    details = team.details()
    assert dict(details.facts)["kind"] == "MPIJob"
    assert {group.role: group.replicas for group in details.groups} == {"worker": 2, "launcher": 1}
    assert details.pods[Replica("launcher", 0)] == "mine-launcher"

    async def attach() -> None:
        registry, display = Registry({}), Recorder()
        session = Session(registry, Owner("a test"), team.settings())
        work = asyncio.ensure_future(session.attach("mine", display))
        await display.until("up 4\nup 4\n", replica="worker-1", patience=180)
        work.cancel()
        await asyncio.wait({work})
        await registry.close()

    asyncio.run(attach())
    assert "mine-launcher" in left(team)  # an attached job keeps running

    async def delete(session: Session) -> None:
        ((job, _),) = await session.jobs()
        await session.backend("kubernetes").delete(job)

    team._ask(delete)
    until(lambda: left(team) == [], "everything to be gone", 60)


@pytest.mark.second("operators")
def test_the_server_would_accept_the_objects_that_a_dry_run_shows(team: Team) -> None:
    ended = run(team, f"%dryrun=server\n{WAITS}")
    assert ended.error is None, ended.error
    assert left(team) == []
