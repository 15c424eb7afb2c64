"""Cells as Indexed Jobs, by a user who has the Role for them and no right of the operator's."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest
import yaml

from ciao_kernel.errors import ClusterFault, JobFailed
from ciao_kernel.model import Replica, State
from tests.cluster.faults.users import Rule
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import (
    EXEC,
    JOBS,
    ROLE,
    Team,
    delete_only_job,
    leftovers,
    made,
    rules,
    stop_at,
)
from tests.e2e.jobs.test_rights import verbs
from tests.e2e.jobs.test_verbs import ciao
from tests.helpers.jobs import Ended, Recorder

TF = "%framework=tensorflow\n%api=job\n%ps=1\n%worker=2\n"
TORCH = "%framework=pytorch\n%api=job\n%runner=python\n%worker=1\n"

MEETS = """\
import json, os, socket, sys, time
opened = ""
config = json.loads(os.environ["TF_CONFIG"])
if config["task"]["type"] == "ps":
    port = int(config["cluster"]["ps"][0].partition(":")[2])
    server = socket.create_server(("", port))
    print("listening", flush=True)
    while opened and not os.path.exists(opened):
        time.sleep(0.1)
    while True:
        connection, _ = server.accept()
        connection.sendall(b"from the ps")
        connection.close()
host, _, port = config["cluster"]["ps"][0].partition(":")
while True:
    try:
        with socket.create_connection((host, int(port)), 5) as connection:
            print(os.environ["CIAO_REPLICA"], "got", connection.recv(100).decode(), flush=True)
        break
    except OSError:
        time.sleep(0.2)
"""
"""Both workers ask the PS, which never ends by itself."""


def meet(team: Team, header: str) -> Ended:
    """Run MEETS; the PS answers nobody before the cell has shown its line.

    Else a worker that is faster than the first read of the PS' log would end the job before it, and
    the last words of a PS are not waited for.
    """
    opened = "/tmp/opened"

    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await display.until("listening", replica="ps-0", patience=120)
        pod = (await asyncio.to_thread(team.details)).pods[Replica("ps", 0)]
        await asyncio.to_thread(team.namespace.touch, pod, opened)

    program = MEETS.replace('opened = ""', f"opened = {opened!r}")
    return team.run(header + program, during=during)


RANKS = """\
import os, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(("", place[1]))
    for _ in range(world - 1):
        connection, _ = server.accept()
        print("rank", connection.recv(100).decode(), "of", world, flush=True)
        connection.close()
else:
    while True:
        try:
            with socket.create_connection(place, 5) as connection:
                connection.sendall(str(rank).encode())
            break
        except OSError:
            time.sleep(0.2)
"""

SLEEPS = "import time\nprint('here', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def team(namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    """A user with the Role for Indexed Jobs and nothing more."""
    return made(namespace, tmp_path, monkeypatch, rules(JOBS))


KINDS = "tfjobs,pytorchjobs,jobs,services,endpointslices,pods,configmaps"
left = partial(leftovers, kinds=KINDS)
delete = partial(delete_only_job, kinds=KINDS)


def test_the_role_has_the_rights_that_a_cell_asks_for_and_the_optional_ones() -> None:
    every = {("batch", "jobs", verb) for verb in ("create", "get", "list", "watch", "delete")}
    every |= {("", "services", verb) for verb in ("create", "get")}
    every |= {(group, name, verb) for group, name, verb in verbs(ROLE) if group != "kubeflow.org"}
    assert verbs(JOBS) == every


@pytest.mark.stands_for("operators")
def test_workers_meet_their_ps_which_ends_with_the_job(team: Team) -> None:
    ended = meet(team, TF)
    assert ended.error is None, ended.error
    assert ended.result
    assert ended.result.state is State.SUCCEEDED
    assert ended.display.data("worker-0") == b"worker-0 got from the ps\n"
    assert ended.display.data("ps-0") == b"listening\n"
    assert "Indexed Job" in ended.display.notices
    states = {str(one.replica): one.state for one in ended.result.replicas}
    assert states["worker-0"] is State.SUCCEEDED
    assert states["ps-0"] is State.STOPPED
    (job, now), *others = team.jobs()
    assert (job.resource, now.state, others) == ("jobs", State.SUCCEEDED, [])
    delete(team)


@pytest.mark.stands_for("operators")
def test_a_failed_replica_ends_the_job_at_once(team: Team) -> None:
    text = "import os, sys, time\nprint('here', flush=True)\n"
    text += "if os.environ['CIAO_REPLICA'] == 'worker-1': sys.exit(3)\ntime.sleep(600)\n"
    ended = team.run(TF + text)
    assert isinstance(ended.error, JobFailed)
    assert "worker-1" in ended.error.message
    assert "exit code 3" in ended.error.message
    assert ended.display.data("worker-1") == b"here\n"

    def others_are_gone() -> bool:
        pods = team.namespace.get("pods")["items"]
        return [pod["status"]["phase"] for pod in pods] == ["Failed"]

    until(others_are_gone, "the other pods to be stopped", 60)
    ((_, now),) = team.jobs()
    assert now.state is State.FAILED


@pytest.mark.second("operators")
def test_ranks_meet_at_the_master(team: Team) -> None:
    ended = team.run(TORCH + RANKS)
    assert ended.error is None, ended.error
    assert ended.display.data("master-0") == b"rank 1 of 2\n"
    delete(team)


@pytest.mark.second("operators")
def test_a_stopped_cell_leaves_nothing(team: Team) -> None:
    stop_at(team, TF + SLEEPS, "here", "worker-1")
    until(lambda: left(team) == [], "everything to be gone", 60)


@pytest.mark.second("operators")
def test_a_detached_job_is_found_described_and_deleted(team: Team) -> None:
    ended = team.run("%name=mine\n%detach\n" + TF + SLEEPS)
    assert ended.error is None, ended.error
    until(lambda: team.jobs()[0][1].state is State.RUNNING, "the job to run", 120)
    # It runs as soon as one of its pods does.
    until(lambda: Replica("worker", 1) in team.details().pods, "the pod of worker-1", 60)
    details = team.details()
    assert dict(details.facts)["kind"] == "Job"
    assert {group.role: group.replicas for group in details.groups} == {"ps": 1, "worker": 2}
    assert details.pods[Replica("worker", 1)].startswith("mine-2-")
    team.namespace.wait_for_pod(details.pods[Replica("worker", 1)], "Running")
    team.user.allow(*rules(JOBS), *rules(EXEC))
    words = ("sh", "-c", "echo $CIAO_REPLICA $TF_CONFIG")
    said = ciao(team, "exec", "mine/worker-1", "--", *words).split()
    assert (said[0], json.loads(said[1])["task"]["index"]) == ("worker-1", 1)
    delete(team)


@pytest.mark.second("operators")
def test_without_any_one_verb_a_cell_says_which(team: Team) -> None:
    for taken in (("batch", "jobs", "create"), ("", "services", "create")):
        kept = sorted(verbs(JOBS) - {taken})
        team.user.allow(*(Rule([name], [verb], [group]) for group, name, verb in kept))
        error = team.run(TF + SLEEPS).error
        assert isinstance(error, ClusterFault)
        right = f"{taken[2]} {taken[1]}" + (f".{taken[0]}" if taken[0] else "")
        assert error.message.endswith(f"missing rights: {right}.")
        role = yaml.safe_load(error.hint.partition("\n\n")[2].partition("---")[0])
        assert [rule["resources"] for rule in role["rules"]] == [[taken[1]]]
    assert left(team) == []


@pytest.mark.second("operators")
def test_the_server_would_accept_the_objects_that_a_dry_run_shows(team: Team) -> None:
    ended = team.run("%dryrun=server\n" + TF + SLEEPS)
    assert ended.error is None, ended.error
    assert left(team) == []


@pytest.mark.second("operators")
def test_a_program_in_any_language_needs_no_python_in_its_image(team: Team) -> None:
    header = "%framework=custom\n%worker=2\n%command=sh {cell}\n"
    header += f"%image={team.namespace.cluster.image('tools')}\n"
    ended = team.run(header + 'echo "rank $RANK of $WORLD_SIZE, $CIAO_CELL"\n')
    assert ended.error is None, ended.error
    for index in range(2):
        said = ended.display.data(f"worker-{index}")
        assert said == f"rank {index} of 2, /ciao/ciao_cell\n".encode()
    delete(team)
