"""Cells as TrainJobs of a user who may create no runtimes, with those of deploy/trainer."""

from __future__ import annotations

import json
import shlex
from functools import partial
from pathlib import Path

import pytest
import yaml

from ciao_kernel.errors import JobFailed
from ciao_kernel.model import Replica, State
from tests.cluster.faults import policies
from tests.cluster.faults.users import Rule
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.jobs import test_surviving as surviving
from tests.e2e.jobs.conftest import RBAC, Team, delete_only_job, leftovers, made, rules, stop_at
from tests.e2e.jobs.test_indexed_jobs import RANKS, SLEEPS, meet
from tests.e2e.jobs.test_mpi import run
from tests.e2e.jobs.test_verbs import TALK, TWO, ciao, start, wait_for
from tests.helpers import digits
from tests.integration.docs import blocks

pytestmark = pytest.mark.second("operators")

SHARED = RBAC / "trainer-shared-role.yaml"
RUNTIMES = RBAC.parent / "trainer"
TF = "%framework=tensorflow\n%api=trainer\n%ps=1\n%worker=2\n"
PLAIN = "%framework=python\n%worker=2\n"
BATCH = Rule(["jobs"], ["create", "get", "list", "watch", "delete"], ["batch"])
SERVICES = Rule(["services"], ["create", "get"], [""])
KINDS = "trainjobs,trainingruntimes,jobsets,jobs,services,endpointslices,pods,configmaps"
left = partial(leftovers, kinds=KINDS)
delete = partial(delete_only_job, kinds=KINDS)


@pytest.fixture
def team(
    trainer: None, namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Team:
    """A user with the Role for TrainJobs alone; an administrator has applied the runtimes.

    They stay: nobody else's jobs use them, unless their users may create no runtimes either.
    """
    (applied,) = (one for one in blocks.read(RUNTIMES / "README.md") if one.kind == "by")
    *words, folder = shlex.split(applied.text)
    namespace.cluster.kubectl(*words[1:], str(blocks.ROOT / folder))
    found = made(namespace, tmp_path, monkeypatch, rules(SHARED))
    found.images["python"] = found.images["pytorch"]
    return found


def runtime(team: Team) -> str:
    """The runtime of the only job."""
    (job,) = team.namespace.get("trainjobs")["items"]
    assert job["spec"]["runtimeRef"]["kind"] == "ClusterTrainingRuntime"
    return str(job["spec"]["runtimeRef"]["name"])


def test_workers_meet_their_ps_which_ends_with_the_job(team: Team) -> None:
    ended = meet(team, TF)
    assert ended.error is None, ended.error
    assert ended.result
    assert ended.display.data("worker-0") == b"worker-0 got from the ps\n"
    assert ended.display.data("ps-0") == b"listening\n"
    said = "runs as a TrainJob, with the ClusterTrainingRuntime ciao-tensorflow"
    assert ended.display.notices.count(said) == 1
    states = {str(one.replica): one.state for one in ended.result.replicas}
    assert states["worker-0"] is State.SUCCEEDED
    assert states["ps-0"] is State.STOPPED
    assert runtime(team) == "ciao-tensorflow"
    (job, now), *others = team.jobs()
    assert (job.resource, now.state, others) == ("trainjobs", State.SUCCEEDED, [])
    delete(team)


def test_a_failed_replica_ends_the_job_at_once_and_only_once(team: Team) -> None:
    text = "import os, sys, time\nprint('here', flush=True)\n"
    text += "if os.environ['CIAO_REPLICA'] == 'ps-0': sys.exit(3)\ntime.sleep(600)\n"
    ended = team.run(TF + text)
    assert isinstance(ended.error, JobFailed)
    assert "ps-0" in ended.error.message
    assert "exit code 3" in ended.error.message
    assert ended.display.data("ps-0") == b"here\n"
    until(lambda: team.jobs()[0][1].state is State.FAILED, "Trainer to see the failure", 120)
    (jobset,) = team.namespace.get("jobsets")["items"]
    assert jobset["status"].get("restarts", 0) == 0
    pods = team.namespace.get("pods")["items"]
    counts = [one for pod in pods for one in pod["status"].get("containerStatuses", ())]
    assert {one["restartCount"] for one in counts} == {0}
    delete(team)


def test_ranks_meet_at_the_master(team: Team) -> None:
    header = "%framework=pytorch\n%api=trainer\n%runner=python\n%worker=1\n"
    ended = team.run(header + RANKS)
    assert ended.error is None, ended.error
    assert ended.display.data("master-0") == b"rank 1 of 2\n"
    assert runtime(team) == "ciao-pytorch"
    delete(team)


def test_all_replicas_of_a_program_decide_and_its_files_are_there(team: Team) -> None:
    (team.folder / "data").mkdir()
    (team.folder / "data" / "train.csv").write_text("1,2\n")
    text = "import os, time\nif os.environ['CIAO_INDEX'] == '1': time.sleep(3)\n"
    text += "print(open('data/train.csv').read().strip(), os.getcwd())\n"
    # Without the kind of another operator, and without %api.
    ended = team.run("%files=data/train.csv\n%envvar=A=b\n%labels=team=a\n" + PLAIN + text)
    assert ended.error is None, ended.error
    assert ended.display.data("worker-0") == ended.display.data("worker-1") == b"1,2 /ciao\n"
    assert "you may not create TrainingRuntimes there" in ended.display.notices
    assert runtime(team) == "ciao-python"
    delete(team)


def test_an_image_with_a_user_of_its_own_runs_in_a_restricted_namespace(team: Team) -> None:
    team.namespace.label(policies.pod_security("restricted"))
    (team.folder / "data").mkdir()
    (team.folder / "data" / "a.txt").write_text("a")
    text = "import os, pathlib\npathlib.Path('data/b.txt').write_text('b')\n"
    text += "print(os.getuid(), *sorted(os.listdir('data')))\n"
    images = {"python": team.namespace.cluster.image("s2i-python")}
    ended = team.run("%files=data/\n" + PLAIN + text, images=images)
    assert ended.error is None, ended.error
    for one in ("worker-0", "worker-1"):
        assert ended.display.data(one) == b"1001 a.txt b.txt\n"
    assert runtime(team) == "ciao-python"
    delete(team)


def test_a_stopped_cell_leaves_nothing(team: Team) -> None:
    stop_at(team, TF + SLEEPS, "here", "worker-1")
    until(lambda: left(team) == [], "everything to be gone", 60)


def test_a_detached_job_is_found_described_attached_to_and_deleted(team: Team) -> None:
    start(team, "%api=trainer\n" + TWO + TALK)
    wait_for(team, "[worker-0] second", "[worker-1] second")
    details = team.details()
    assert dict(details.facts)["kind"] == "TrainJob"
    (group,) = details.groups
    assert (group.role, group.replicas, group.restart_policy) == ("worker", 2, "Never")
    assert group.image == team.images["tensorflow"]
    assert details.pods[Replica("worker", 1)].startswith("two-node-0-1-")
    log = ciao(team, "logs", "two", "--replica", "worker-1")
    assert (log.count("first of worker-1\n"), log.count("second\n")) == (1, 1)
    assert "first of worker-0" not in log
    delete(team)


def test_a_cell_that_a_runtime_does_not_allow_runs_as_an_indexed_job(team: Team) -> None:
    team.user.allow(*rules(SHARED), BATCH, SERVICES)
    ended = team.run("%restartPolicy=OnFailure\n" + PLAIN + "print('mine')\n")
    assert ended.error is None, ended.error
    said = "(and the ClusterTrainingRuntime ciao-python does not allow %restartPolicy)"
    assert said in ended.display.notices
    assert team.jobs()[0][0].resource == "jobs"


HEADERS = (
    "%framework=tensorflow\n%ps=1\n%chief=1\n%worker=2\n%evaluator=1\n",
    "%framework=pytorch\n%worker=2\n",
    "%framework=jax\n%worker=2\n",
    "%framework=xgboost\n%worker=2\n",
    "%framework=paddle\n%worker=2\n",
    "%framework=mpi\n%worker=2\n",
    "%framework=python\n%worker=2\n",
    "%framework=custom\n%worker=2\n%command=sh {cell}\n",
)


@pytest.mark.timeout(300)
def test_the_server_would_accept_each_framework(team: Team) -> None:
    """Also kubectl, which warns of a field that the server would prune. Nothing is left of it."""
    more = f"%dryrun=server\n%image={team.images['python']}\n%deadline=1h\n%grace=90s\n"
    more += "%labels=team=a\n%nodeSelector=a=b\n%toleration=gpu=yes:NoSchedule\n%cpu=1\n"
    for header in HEADERS:
        ended = team.run(f"{more}%api=trainer\n{header}x = 1\n")
        assert ended.error is None, (header, ended.error)
        objects = yaml.safe_load_all(ended.display.notices)
        (job,) = (one for one in objects if one["kind"] == "TrainJob")
        assert job["spec"]["runtimeRef"]["kind"] == "ClusterTrainingRuntime", header
        strict = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
        team.namespace.cluster.kubectl(*strict, text=json.dumps(job))
    assert left(team) == []


@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.xdist_group("mpi")  # one at a time: two starve each other
@pytest.mark.usefixtures("with_mpi")
def test_mpirun_reaches_its_workers(team: Team) -> None:
    ended = run(team, f"%api=trainer\n%memory=800Mi\n{digits.MPI}")
    assert ended.error is None, ended.error
    assert set(ended.display.replicas) == {"worker-0", "worker-1"}
    assert b"rank 3 of 4 on " in ended.display.data("worker-1")
    assert runtime(team) == "ciao-mpi"
    delete(team)


@pytest.mark.timeout(120 + 240 * surviving.ROUNDS)
def test_training_goes_on_from_its_checkpoint_after_losses(
    team: Team, claim: str, figure: surviving.Figure
) -> None:
    kind = "%framework=python\n%api=trainer\n%worker=2\n"
    figure(surviving.survives(team, claim, kind, "worker-0,worker-1"))
