"""Cells as TrainJobs, by a user who has the Role for them and no right of the operator's."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import trainer as trainer_api
from ciao_kernel.errors import ClusterFault, DirectiveError, JobFailed
from ciao_kernel.model import Owner, Replica, State
from ciao_kernel.model.progress import Done
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from tests.cluster.errors import ClusterError
from tests.cluster.faults.users import Rule
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.jobs import test_surviving as surviving
from tests.e2e.jobs.conftest import (
    EXEC,
    ROLE,
    TRAIN,
    Team,
    delete_only_job,
    leftovers,
    made,
    rules,
    stop_at,
)
from tests.e2e.jobs.test_indexed_jobs import RANKS, SLEEPS, meet
from tests.e2e.jobs.test_rights import verbs
from tests.e2e.jobs.test_verbs import TALK, TWO, ciao, start, wait_for
from tests.helpers.jobs import Ended, Recorder, wait

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


KINDS = "trainjobs,trainingruntimes,jobsets,jobs,services,endpointslices,pods,configmaps"
left = partial(leftovers, kinds=KINDS)
delete = partial(delete_only_job, kinds=KINDS)


def test_workers_meet_their_ps_which_ends_with_the_job(team: Team) -> None:
    ended = meet(team, "%worker=2;%memory=300Mi\n" + TF.replace("%worker=2\n", ""))
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


def test_a_failed_replica_ends_the_job_at_once_and_only_once(team: Team) -> None:
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
    until(lambda: team.jobs()[0][1].state is State.FAILED, "Trainer to see the failure", 120)
    (jobset,) = team.namespace.get("jobsets")["items"]
    assert jobset["status"].get("restarts", 0) == 0
    delete(team)


def test_a_replica_is_started_again_where_the_cell_asks_for_it(team: Team) -> None:
    text = "import os, sys\nprint('again', flush=True)\nseen = os.path.exists('/dev/shm/seen')\n"
    text += "open('/dev/shm/seen', 'w')\nsys.exit(0 if seen else 3)\n"
    # The limit counts the restarts of all pods of a role.
    ended = team.run("%restartPolicy=OnFailure\n%backoffLimit=9\n%api=trainer\n" + PLAIN + text)
    assert ended.error is None, ended.error
    assert ended.display.data("worker-1") == b"again\nagain\n"
    delete(team)


def test_ranks_meet_at_the_master(team: Team) -> None:
    ended = team.run(TORCH + RANKS)
    assert ended.error is None, ended.error
    assert ended.display.data("master-0") == b"rank 1 of 2\n"
    delete(team)


def test_what_a_program_tells_trainer_is_known_to_the_cell(team: Team) -> None:
    async def tell(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await display.until("here", replica="worker-0", patience=300)
        assert display.job
        told = {
            "progressPercentage": 45,
            "estimatedRemainingSeconds": 90,
            "lastUpdatedTime": "2026-11-21T11:00:10Z",
        }
        patch = json.dumps({"status": {"trainerStatus": told}})
        words = ("patch", "trainjobs", display.job.name, "--subresource=status", "--type=merge")
        await asyncio.to_thread(team.namespace.kubectl, *words, "-p", patch)
        await wait(lambda: display.status.told == Done(0.45, 90.0), 120)
        work.cancel()

    text = "import time\nprint('here', flush=True)\ntime.sleep(600)\n"
    with pytest.raises(asyncio.CancelledError):
        team.run("%api=trainer\n" + PLAIN + text, during=tell)


def test_a_stopped_cell_leaves_nothing(team: Team) -> None:
    stop_at(team, TF + SLEEPS, "here", "worker-1")
    until(lambda: left(team) == [], "everything to be gone", 60)


def test_pods_that_the_cluster_refuses_say_why(team: Team) -> None:
    """The user may not create pods, so ciao cannot try one; the events are about the child Jobs."""

    why = 'serviceaccount "nobody" not found'

    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        def told() -> list[bool]:
            return [why in reason for reason in display.reasons("worker")]

        await wait(lambda: told() == [True, True], 120)
        details = await asyncio.to_thread(team.details)
        assert any(why in event.message for event in details.cluster_events)
        work.cancel()

    with pytest.raises(asyncio.CancelledError):
        team.run("%serviceAccount=nobody\n%api=trainer\n" + PLAIN + SLEEPS, during=during)
    until(lambda: left(team) == [], "everything to be gone", 60)


def test_a_detached_job_is_found_described_and_deleted(team: Team) -> None:
    ended = team.run("%name=mine\n%detach\n" + TF + SLEEPS)
    assert ended.error is None, ended.error
    until(lambda: team.jobs()[0][1].state is State.RUNNING, "the job to run", 120)
    # It runs as soon as one of its pods does.
    until(lambda: Replica("worker", 1) in team.details().pods, "the pod of worker-1", 60)
    details = team.details()
    assert dict(details.facts)["kind"] == "TrainJob"
    assert {group.role: group.replicas for group in details.groups} == {"ps": 1, "worker": 2}
    assert {group.restart_policy for group in details.groups} == {"Never"}
    assert details.pods[Replica("worker", 1)].startswith("mine-worker-0-1-")
    assert details.cluster_events
    delete(team)


def test_a_job_of_the_same_name_gets_no_pods_of_an_earlier_one(team: Team) -> None:
    for text in ("first", "second"):
        ended = team.run(f"%name=mine\n%api=trainer\n{PLAIN}print('{text}')\n")
        assert ended.error is None, ended.error
        assert ended.result
        assert ended.display.data("worker-0") == f"{text}\n".encode()
    assert [job.name for job, _ in team.jobs()] == ["mine", "mine-2"]


def test_a_name_that_jobset_would_refuse_later_is_refused_before(team: Team) -> None:
    ended = team.run(f"%name={'a' * 45}\n{TF}{SLEEPS}")
    assert isinstance(ended.error, DirectiveError)
    assert "have at most 63 characters" in ended.error.message
    assert left(team) == []


def test_a_job_whose_pods_can_never_be_created_fails(team: Team) -> None:
    """Trainer accepts the name that JobSet refuses, and sets no condition at all."""

    def too_long(name: str) -> dict[str, Any]:
        meta = {"name": name}
        pod = {"restartPolicy": "Never", "containers": [{"name": "node", "image": "none"}]}
        job = {"completions": 1, "parallelism": 1, "template": {"spec": pod}}
        part = {"name": "worker", "replicas": 1, "template": {"spec": job}}
        template = {"template": {"spec": {"replicatedJobs": [part]}}}
        kind = {"apiVersion": f"{GROUP}/v1alpha1", "metadata": meta}
        return {**kind, "kind": "TrainingRuntime", "spec": template}

    name = "a" * 50
    job = {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/managed-by": "ciao"},
            "annotations": {"ciao-kernel/replicas": "worker=1"},
        },
        "spec": {"runtimeRef": {"name": name, "kind": "TrainingRuntime"}},
    }
    team.namespace.create_objects(too_long(name))

    def is_accepted() -> bool:
        try:
            team.namespace.create_objects(job)
        except ClusterError as error:
            if trainer_api.RUNTIME_FIRST not in str(error):
                raise
            return False
        return True

    until(is_accepted, "Trainer to see the runtime", 30)

    async def follow(session: Session) -> Any:
        backend, found, _ = await session.find(name)
        return [event async for event in backend.follow(found)][-1]

    async def main() -> Any:
        registry = Registry({})
        try:
            return await follow(
                Session(registry, Owner("a test"), team.settings(hopeless_wait=2.0))
            )
        finally:
            await registry.close()

    now = asyncio.run(main())
    assert now.state is State.FAILED
    assert "TrainJobResourcesCreationFailed" in now.message
    assert "JobSet name is too long" in now.message


def test_auto_takes_a_train_job_where_the_operator_has_no_kind_and_the_rights_are_there(
    team: Team,
) -> None:
    ended = team.run(PLAIN + "print('mine')\n")
    assert ended.error is None, ended.error
    assert team.jobs()[0][0].resource == "trainjobs"
    kept = [one for one in rules(TRAIN) if one.resources != ["trainingruntimes"]]
    batch = Rule(["jobs"], ["create", "get", "list", "watch", "delete"], ["batch"])
    team.user.allow(*kept, batch, Rule(["services"], ["create", "get"], [""]))
    # No runtime of the cluster allows the policy; other tests may have applied one.
    ended = team.run("%restartPolicy=OnFailure\n" + PLAIN + "print('mine')\n")
    assert ended.error is None, ended.error
    assert "you may not create TrainJobs with a TrainingRuntime there" in ended.display.notices
    assert {job.resource for job, _ in team.jobs()} == {"trainjobs", "jobs"}


def test_the_role_has_the_rights_that_a_cell_asks_for(team: Team) -> None:
    every = {(GROUP, "trainjobs", verb) for verb in ("create", "get", "list", "watch", "delete")}
    every |= {(GROUP, "trainingruntimes", verb) for verb in ("create", "get")}
    every |= {(group, name, verb) for group, name, verb in verbs(ROLE) if group != "kubeflow.org"}
    assert verbs(TRAIN) == every
    for taken in (("trainjobs", "create"), ("trainingruntimes", "create"), ("configmaps", "patch")):
        kept = [one for one in verbs(TRAIN) if one[1:] != taken]
        team.user.allow(*(Rule([name], [verb], [group]) for group, name, verb in sorted(kept)))
        # No runtime of the cluster allows the policy. Other tests may have applied one, which is
        # named then.
        error = team.run("%restartPolicy=OnFailure\n" + TF + SLEEPS).error
        assert isinstance(error, (ClusterFault, DirectiveError))
        what = {"trainingruntimes": "TrainingRuntimes"}.get(taken[0], taken[0])
        assert f"missing rights: {taken[1]} {taken[0]}" in error.message or (
            f"does not allow %restartPolicy, and you may not {taken[1]} {what}" in error.message
        )
    assert left(team) == []


HEADERS = (
    "%framework=tensorflow\n%ps=1\n%chief=1\n%worker=2\n%evaluator=1\n",
    "%framework=pytorch\n%worker=2\n",
    "%framework=pytorch\n%worker=2\n%runner=python\n",
    "%framework=pytorch\n%worker=2\n%min=1\n%max=3\n",
    "%framework=jax\n%worker=2\n",
    "%framework=xgboost\n%worker=2\n",
    "%framework=paddle\n%worker=2\n",
    "%framework=mpi\n%worker=2\n%slots=2\n",
    "%framework=python\n%worker=2\n",
    "%framework=custom\n%worker=2\n%command=sh {cell}\n",
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("api", ["v1", "trainer", "job"])
def test_the_server_would_accept_each_framework_in_each_api(team: Team, api: str) -> None:
    """In one namespace: a dry run leaves nothing, as is shown at the end."""
    jobs = Rule(["*"], ["*"], ["kubeflow.org", "batch", ""])
    team.user.allow(*rules(TRAIN), jobs)
    asks = f"%api={api}\n%dryrun=server\n%image={team.images['python']}\n%deadline=1h\n"
    errors = {header: team.run(f"{asks}{header}x = 1\n").error for header in HEADERS}
    for header in HEADERS[-2:] if api == "v1" else ():  # python and custom
        error = errors.pop(header)
        assert isinstance(error, DirectiveError), header
        assert "has no kind for" in error.message
    assert errors == dict.fromkeys(errors)
    assert left(team) == []


def test_each_framework_is_among_them() -> None:
    names = {header.partition("\n")[0].partition("=")[2] for header in HEADERS}
    assert names == set(Registry({}).table.names.frameworks)


@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.xdist_group("training")  # one at a time: two starve each other
@pytest.mark.usefixtures("with_frameworks")
def test_torchrun_forms_one_group_of_a_train_job(team: Team) -> None:
    text = "import torch\nimport torch.distributed as dist\n"
    text += "dist.init_process_group('gloo')\nsum = torch.tensor([dist.get_rank() + 1.0])\n"
    text += "dist.all_reduce(sum)\nprint('rank', dist.get_rank(), 'sees', sum.item())\n"
    images = {"pytorch": team.namespace.cluster.image("pytorch")}
    header = "%framework=pytorch\n%api=trainer\n%worker=1\n"
    ended = team.run(header + text, images=images)
    assert ended.error is None, ended.error
    assert b"rank 0 sees 3.0\n" in ended.display.data("master-0")
    assert b"rank 1 sees 3.0\n" in ended.display.data("worker-0")
    delete(team)


def test_a_running_job_is_attached_to_read_and_entered(team: Team) -> None:
    team.user.allow(*rules(TRAIN), *rules(EXEC))
    start(team, "%api=trainer\n" + TWO + TALK)
    wait_for(team, "[worker-0] second", "[worker-1] second")
    log = ciao(team, "logs", "two", "--replica", "worker-1")
    assert (log.count("first of worker-1\n"), log.count("second\n")) == (1, 1)

    async def look(display: Recorder, work: asyncio.Task[Any]) -> None:
        for replica in ("worker-0", "worker-1"):
            await display.until(f"first of {replica}\nsecond\n", replica=replica)
        work.cancel()

    with pytest.raises(asyncio.CancelledError):
        ciao(team, "attach", "two", during=look)
    said = ciao(team, "exec", "two/worker-1", "--", "sh", "-c", "hostname; ls; echo $TF_CONFIG")
    host, program, config = said.splitlines()
    assert (host, program) == ("two-worker-0-1", "ciao_cell.py")
    assert json.loads(config)["task"] == {"type": "worker", "index": 1}
    delete(team)


@pytest.mark.timeout(120 + 240 * surviving.ROUNDS)
def test_training_goes_on_from_its_checkpoint_after_losses(
    team: Team, claim: str, figure: surviving.Figure
) -> None:
    kind = "%framework=python\n%api=trainer\n%worker=2\n"
    figure(surviving.survives(team, claim, kind, "worker-0,worker-1"))
