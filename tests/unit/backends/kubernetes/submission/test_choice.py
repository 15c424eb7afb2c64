"""Which API runs a cell."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any, cast

import pytest

from ciao_kernel.backends.kubernetes.apis import JOB, MPI_OPERATOR, OPERATOR_V1, TRAINER
from ciao_kernel.backends.kubernetes.apis.trainer import RUNTIME_FIRST
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.submission import choice
from ciao_kernel.backends.kubernetes.submission.choice import Choice
from ciao_kernel.config import Settings
from ciao_kernel.errors import ClusterFault, Refused, SpecError
from ciao_kernel.kube import responses
from ciao_kernel.kube.answer_cache import AnswerCache
from ciao_kernel.model import ApiName, CleanPolicy
from ciao_kernel.plugins import Plan
from tests.unit.backends.kubernetes.manifests.test_indexed_manifest import TF, plan_of

SILENT = (
    'Internal error occurred: failed calling webhook "validator.trainjob.trainer.kubeflow.org": '
    "context deadline exceeded"
)


class Seconds(AnswerCache):
    """Notes for how long the last answer is kept."""

    seconds = 0.0

    def keep(self, key: str, found: Any, seconds: float) -> None:
        super().keep(key, found, seconds)
        self.seconds = seconds


class Client:
    """A server that serves some kinds of the operator, and perhaps Kubeflow Trainer.

    It has the ClusterTrainingRuntimes `runtimes`, and prunes fields that its version lacks.
    """

    class access:
        source = "context c"

    def __init__(
        self,
        *kinds: str,
        minor: str = "34",
        trainer: bool = False,
        may: tuple[str, ...] = ("trainjobs", "trainingruntimes"),
        grants: tuple[tuple[str, str], ...] = (("kubeflow.org", "*"),),
        runtimes: tuple[str, ...] = (),
        pruned: tuple[str, ...] = (),
    ) -> None:
        self.runtimes, self.pruned, self.tried = runtimes, pruned, 0
        self.cache = Seconds()
        self.full = self.silent = False
        self.kinds, self.minor = kinds, minor
        self.trainer, self.may, self.grants = trainer, may, grants

    async def create(self, path: str, body: Any, *, dry_run: bool, awaits_webhooks: bool) -> Any:
        assert dry_run
        assert not awaits_webhooks
        self.tried += 1
        if self.silent:
            raise responses.refused(500, json.dumps({"message": SILENT}), path)
        if body["spec"]["runtimeRef"]["name"] not in self.runtimes:
            if self.full:
                raise Refused("exceeded quota: small", code=403)
            raise Refused(f"it {RUNTIME_FIRST}", code=403)
        spec = {key: value for key, value in body["spec"].items() if key not in self.pruned}
        return {**body, "spec": spec}

    async def known(self, path: str, body: Any = None) -> Any:
        if path == "/version":
            return {"major": "1", "minor": self.minor}
        if path == "/apis/trainer.kubeflow.org/v1alpha1":
            if not self.trainer:
                raise Refused("not found", code=404)
            return {"resources": [{"name": "trainjobs"}, {"name": "trainjobs/status"}]}
        if path.endswith("rulesreviews"):
            rule = {"apiGroups": ["trainer.kubeflow.org"], "verbs": ["*"]}
            rules = [{**rule, "resources": list(self.may)}]
            rules += [{"apiGroups": [""], "verbs": ["*"], "resources": ["configmaps"]}]
            rules += [
                {"apiGroups": [group], "verbs": ["*"], "resources": [name]}
                for group, name in self.grants
            ]
            return {"status": {"resourceRules": rules, "incomplete": False}}
        if not self.kinds:
            raise Refused("not found", code=404)
        return {"resources": [{"name": kind} for kind in self.kinds]}


class WithoutOperator:
    """A framework that has no kind of the operator."""

    def __init__(self, like: Any) -> None:
        self.name, self.decider, self.environment = "plain", like.decider, like.environment


def choose(text: str, client: Client, *, plain: bool = False, **settings: Any) -> Choice:
    plan: Plan = plan_of(text)
    if plain:
        plan = replace(plan, framework=cast("Any", WithoutOperator(plan.framework)))
    target = Target(cast("Any", client), "team")
    return asyncio.run(choice.choose(plan, target, Settings(**settings)))


def test_the_operators_kind_is_taken_where_it_is_served() -> None:
    assert choose(TF, Client("tfjobs")) == Choice(OPERATOR_V1)
    assert choose(TF, Client("tfjobs"), api=ApiName.V1).notice == ""


@pytest.mark.parametrize("kinds", [(), ("pytorchjobs",)])
def test_an_indexed_job_takes_the_place_of_a_missing_kind(kinds: tuple[str, ...]) -> None:
    made = choose(TF, Client(*kinds))
    assert made.api is JOB
    assert made.notice == (
        "the job runs as an Indexed Job of Kubernetes: context c does not support TFJob."
    )


def test_a_cell_wins_over_the_settings_and_both_over_the_cluster() -> None:
    served = Client("tfjobs")
    assert choose(TF + "%api=job\n", served).notice.endswith(": %api=job asks for it.")
    assert choose(TF, served, api=ApiName.JOB).notice.endswith(": the setting api is job.")
    assert choose(TF + "%api=v1\n", Client(), api=ApiName.JOB) == Choice(OPERATOR_V1)
    assert choose(TF + "%api=auto\n", served, api=ApiName.JOB) == Choice(OPERATOR_V1)


def test_a_framework_without_a_kind_of_the_operator_runs_as_an_indexed_job() -> None:
    served = Client("tfjobs")
    why = "the training operator has no kind for plain jobs"
    assert choose(TF, served, plain=True) == Choice(JOB, why)
    assert choose(TF, served, plain=True, api=ApiName.V1) == Choice(JOB, why)
    with pytest.raises(SpecError, match=f"{why}.") as caught:
        choose(TF + "%api=v1\n", served, plain=True)
    assert caught.value.directive == "api"


EDIT = (("batch", "jobs"), ("", "services"))
"""Rights of Kubernetes' role edit, as far as they matter here."""


def test_a_user_who_may_not_create_the_operators_kind_gets_another() -> None:
    why = "you may not create tfjobs.kubeflow.org in team"
    editor = Client("tfjobs", grants=EDIT)
    assert choose(TF, editor) == Choice(JOB, why)
    assert choose(TF + "%api=v1\n", editor) == Choice(OPERATOR_V1)
    assert choose(TF, Client("tfjobs", grants=EDIT, trainer=True)) == Choice(TRAINER, why)


def test_a_user_who_may_create_no_kind_is_told_which_right_the_operators_kind_needs() -> None:
    for grants in ((), EDIT[:1]):
        assert choose(TF, Client("tfjobs", grants=grants)) == Choice(OPERATOR_V1)
    assert choose(TF, Client("tfjobs", grants=EDIT, minor="30")) == Choice(OPERATOR_V1)


@pytest.mark.parametrize(
    ("cell", "settings"),
    [
        (TF + "%restartPolicy=ExitCode\n", {}),
        (TF + "%cleanPolicy=none\n", {}),
        (TF, {"clean_policy": CleanPolicy.NONE}),
        (TF, {"gang_scheduler": "other"}),
        ("%framework=tensorflow\n%ps=1\n%worker=2;%gpu=1\n", {}),
    ],
)
def test_a_cell_that_only_the_operators_kind_can_run_gets_no_other(
    cell: str, settings: dict[str, Any]
) -> None:
    """The hint was to use a cluster with the operator, which this one has."""
    assert choose(cell, Client("tfjobs", grants=EDIT), **settings) == Choice(OPERATOR_V1)


def test_an_old_cluster_needs_the_operator() -> None:
    old = Client(minor="30")
    assert choose(TF, old) == Choice(OPERATOR_V1)  # whose absence the check reports
    with pytest.raises(
        ClusterFault, match=r"need Kubernetes 1\.31 or newer, and context c has 1\.30"
    ) as asked:
        choose(TF + "%api=job\n", old)
    assert "%api=v1" in asked.value.hint
    with pytest.raises(ClusterFault, match=r"1\.31") as never:
        choose(TF, old, plain=True)
    assert "cannot run it" in never.value.hint  # an operator would not help


MPI = "%framework=mpi\n%worker=2\n"


def test_mpirun_needs_no_operator() -> None:
    assert choose(MPI, Client("mpijobs")).notice == ""
    assert choose(MPI, Client("mpijobs"), api=ApiName.JOB).api is JOB
    assert choose(MPI, Client("tfjobs")) == Choice(JOB, "context c does not support MPIJob")
    assert choose(MPI, Client("tfjobs", trainer=True)).api is TRAINER
    assert choose(MPI + "%api=v1\n", Client("tfjobs")) == Choice(OPERATOR_V1)


def test_gpus_that_a_launcher_holds_for_nothing_are_named() -> None:
    """All pods of an Indexed Job have one template."""
    cell = MPI + "%gpu=2\n%cpu=1\n"
    assert choose(cell, Client()).notice.endswith(
        "Its launcher holds as many GPUs as another "
        "replica, and uses none: all replicas of an Indexed Job have the same resources."
    )
    assert "GPUs" not in choose(cell, Client(trainer=True)).notice
    assert "GPUs" not in choose(MPI + "%cpu=1\n", Client()).notice


def test_a_limit_to_which_a_train_job_cannot_be_scaled_is_named() -> None:
    cell = "%framework=pytorch\n%worker=2\n%max={}\n"
    said = "%max=3 has no effect: the number of workers of a TrainJob cannot be changed"
    assert said in choose(cell.format(3), Client(trainer=True)).notice
    assert "%max" not in choose(cell.format(2), Client(trainer=True)).notice
    for other in (choose(cell.format(3), Client()), choose(cell.format(3), Client("pytorchjobs"))):
        assert "%max" not in other.notice


def test_the_version_of_mpi_operator_takes_the_place_of_the_training_operators() -> None:
    class Other(Client):
        async def known(self, path: str) -> Any:
            served = ["mpijobs"] if path.endswith("/v2beta1") else ["tfjobs"]
            return {"resources": [{"name": kind} for kind in served]}

    made = choose(MPI, Other())
    assert made.api is MPI_OPERATOR
    assert made.notice == (
        "the job runs as an MPIJob of mpi-operator (v2beta1), by ssh: context c does not support "
        "MPIJob of kubeflow.org/v1."
    )
    assert choose(MPI + "%api=v1\n", Other()).api is MPI_OPERATOR
    assert choose(MPI, Client("mpijobs")).api is OPERATOR_V1
    assert choose(MPI + "%ttl=1h\n", Client("mpijobs")).api is OPERATOR_V1
    with pytest.raises(SpecError, match="of mpi-operator has no time to live") as raised:
        choose(MPI + "%ttl=1h\n", Other())
    assert raised.value.directive == "ttl"
    assert "ciao delete --finished --older" in str(raised.value.hint)


def test_what_an_indexed_job_cannot_do_is_refused_only_where_it_is_chosen() -> None:
    cell = "%framework=tensorflow\n%ps=1\n%worker=2;%gpu=1\n"
    assert choose(cell, Client("tfjobs")) == Choice(OPERATOR_V1)
    with pytest.raises(SpecError, match="%gpu differs"):
        choose(cell, Client())


def test_a_train_job_takes_the_place_of_a_missing_kind_where_trainer_is_served() -> None:
    made = choose(TF, Client("pytorchjobs", trainer=True))
    assert made.api is TRAINER
    assert made.notice == (
        "the job runs as a TrainJob, with its own TrainingRuntime: "
        "context c does not support TFJob."
    )
    assert choose(TF, Client("tfjobs", trainer=True)) == Choice(OPERATOR_V1)
    assert choose(TF, Client("tfjobs", trainer=True), plain=True).api is TRAINER
    assert choose(TF + "%api=job\n", Client(trainer=True)).api is JOB


def test_who_may_not_create_a_runtime_gets_an_indexed_job_unless_they_insist() -> None:
    reader = Client(trainer=True, may=("trainjobs",))
    made = choose(TF, reader)
    assert made.api is JOB
    assert "you may not create TrainJobs with a TrainingRuntime" in made.notice
    asked = choose(TF + "%api=trainer\n", reader)  # the check lists the missing rights
    assert asked.api is TRAINER
    assert asked.notice.endswith(": %api=trainer asks for it.")
    assert choose(TF, reader, api=ApiName.TRAINER).notice.endswith(": the setting api is trainer.")


def test_who_may_not_create_a_runtime_uses_one_of_the_cluster() -> None:
    reader = Client(trainer=True, may=("trainjobs",), runtimes=("ciao-tensorflow",))
    made = choose(TF, reader)
    assert (made.api, made.runtime, made.rights) == (TRAINER, "ciao-tensorflow", ())
    assert made.notice == (
        "the job runs as a TrainJob, with the ClusterTrainingRuntime ciao-tensorflow: context c "
        "does not support TFJob, and you may not create TrainingRuntimes there."
    )
    asked = choose(TF + "%api=trainer\n", reader)
    assert (asked.runtime, asked.fields) == (made.runtime, made.fields)
    assert reader.tried == 1  # the answer is kept
    owner = choose(TF, Client(trainer=True, runtimes=("ciao-tensorflow",)))
    assert (owner.api, owner.runtime, owner.rights) == (TRAINER, "", TRAINER.rights)


def test_a_runtime_of_the_cluster_that_does_not_suffice_is_named() -> None:
    reader = Client(trainer=True, may=("trainjobs",), runtimes=("ciao-tensorflow",))
    made = choose(TF + "%restartPolicy=OnFailure\n", reader)
    assert made.api is JOB
    assert made.notice.endswith(
        "and you may not create TrainJobs with a TrainingRuntime there (and the "
        "ClusterTrainingRuntime ciao-tensorflow does not allow %restartPolicy)."
    )
    with pytest.raises(SpecError, match=r"does not allow %restartPolicy, and you may not create"):
        choose(TF + "%api=trainer\n%restartPolicy=OnFailure\n", reader)
    other = choose("%framework=jax\n", reader)
    assert other.api is JOB
    assert "(and no ClusterTrainingRuntime ciao-jax is installed)" in other.notice
    old = ("runtimePatches", "podTemplateOverrides", "activeDeadlineSeconds")  # Trainer 2.0
    reader = Client(trainer=True, may=("trainjobs",), runtimes=("ciao-tensorflow",), pruned=old)
    made = choose(TF, reader)
    assert made.api is JOB
    assert made.notice.endswith(
        "(and the ClusterTrainingRuntime ciao-tensorflow needs Trainer 2.1 or newer)."
    )
    assert choose(TF + "%api=trainer\n", reader) == Choice(TRAINER, "%api=trainer asks for it")
    full = Client(trainer=True, may=("trainjobs",))
    full.full = True
    assert "ciao-tensorflow is refused: exceeded quota: small)" in choose(TF, full).notice
    usual, full.silent = full.cache.seconds, True
    full.cache.clear()
    silent = choose(TF, full)
    assert silent.api is JOB
    assert "ciao-tensorflow is refused: the webhook validator.trainjob" in silent.notice
    assert full.cache.seconds > 5 * usual  # not every cell waits for it
    nobody = Client(trainer=True, may=(), runtimes=("ciao-tensorflow",))
    assert choose(TF, nobody).api is JOB
    assert nobody.tried == 0


def test_a_job_in_a_queue_uses_no_runtime_of_the_cluster_by_itself() -> None:
    reader = Client(trainer=True, may=("trainjobs",), runtimes=("ciao-tensorflow",))
    for made in (choose(TF + "%queue=team\n", reader), choose(TF, reader, queue="team")):
        assert made.api is JOB
        assert made.notice.endswith(
            "there (and Kueue before 0.17 admits a TrainJob of a ClusterTrainingRuntime but never "
            "starts it)."
        )
    asked = choose(TF + "%api=trainer\n%queue=team\n", reader)
    assert (asked.api, asked.runtime) == (TRAINER, "ciao-tensorflow")
    assert asked.notice.endswith("but never starts it.")
    older = ("runtimePatches",)  # its overrides stay
    reader = Client(trainer=True, may=("trainjobs",), runtimes=("ciao-tensorflow",), pruned=older)
    assert choose(TF + "%queue=team\n", reader).api is TRAINER


def test_a_gang_uses_no_runtime_of_the_cluster_and_must_have_a_field() -> None:
    reader = Client(trainer=True, may=("trainjobs",), runtimes=("ciao-tensorflow",))
    made = choose(TF, reader, gang_scheduler="volcano")
    assert made.api is JOB
    assert made.notice.endswith("(and one of the cluster takes no gangScheduler).")
    with pytest.raises(SpecError, match="that runtime alone says how"):
        choose(TF + "%api=trainer\n", reader, gang_scheduler="volcano")
    with pytest.raises(SpecError, match="an Indexed Job has no field for the scheduler other"):
        choose(TF, Client(), gang_scheduler="other")
    assert choose(TF, Client("tfjobs"), gang_scheduler="other") == Choice(OPERATOR_V1)
    assert choose(TF, Client(trainer=True), gang_scheduler="other").api is TRAINER


def test_what_a_train_job_cannot_do_is_refused_only_where_it_is_chosen() -> None:
    cell = TF + "%cleanPolicy=none\n"
    assert choose(cell, Client("tfjobs", trainer=True)) == Choice(OPERATOR_V1)
    with pytest.raises(SpecError, match="JobSet stops all replicas"):
        choose(cell, Client(trainer=True))
    with pytest.raises(ClusterFault, match=r"1\.31"):
        choose(TF + "%api=trainer\n", Client(minor="30", trainer=True))
