"""Chooses the API that runs a job: the training operator's, else TrainJobs, else Indexed Jobs."""

from __future__ import annotations

from dataclasses import dataclass

from ciao_kernel.backends.kubernetes import indexed_manifest, manifest, trainer_manifest
from ciao_kernel.backends.kubernetes.apis import (
    JOB,
    MPI_OPERATOR,
    OPERATOR_V1,
    TRAINER,
    Api,
    trainer,
)
from ciao_kernel.backends.kubernetes.rights import Right, allowed
from ciao_kernel.backends.kubernetes.target import Target
from ciao_kernel.config import Settings
from ciao_kernel.errors import ClusterFault, Refused, SpecError
from ciao_kernel.model import ApiName, Manifest
from ciao_kernel.plugins import OperatorKind, Plan, StartedBySsh

_OLDEST = (1, 31)
"""The first version of Kubernetes whose Jobs have a ``successPolicy`` by default."""
_NAMES = {
    OPERATOR_V1.name: "a kind of the training operator",
    JOB.name: "an Indexed Job of Kubernetes",
    TRAINER.name: "a TrainJob, with its own TrainingRuntime",
    MPI_OPERATOR.name: "an MPIJob of mpi-operator (v2beta1), by ssh",
}
_TRAINER_RIGHTS = (Right("create", "trainjobs", trainer.GROUP), *TRAINER.rights)


@dataclass(frozen=True, slots=True)
class Choice:
    """The API of a job."""

    api: Api
    why: str = ""
    """Why it is not the operator's, as part of a sentence; "" if it is."""

    @property
    def notice(self) -> str:
        """Return the sentence that a cell shows; "" if there is nothing to tell."""
        return self.why and f"the job runs as {_NAMES[self.api.name]}: {self.why}."


async def choose(plan: Plan, target: Target, settings: Settings) -> Choice:
    """Return the API for a cell: its own, else the setting's; "auto" asks the cluster.

    Args:
        plan: The program to run, with its options.
        target: Cluster and namespace.
        settings: Used if the cell names no API.

    Raises:
        SpecError: A directive does not fit to the only possible API.
        ClusterFault: The cluster is too old for Indexed Jobs, of which TrainJobs consist.
        Refused: From the client.
    """
    asked = plan.spec.cluster.api or settings.api
    choice = await _choice(asked, plan, target, named=plan.spec.cluster.api is not None)
    if choice.api in (TRAINER, JOB):
        version = await server_version(target)
        if version and not at_least(version, *_OLDEST):
            with_operator = isinstance(plan.framework, OperatorKind)
            if asked is ApiName.AUTO and with_operator:
                return Choice(OPERATOR_V1)  # which an administrator can install
            raise ClusterFault(
                f"Indexed Jobs need Kubernetes 1.31 or newer, and {target.client.access.source} "
                f"has {version.get('major')}.{version.get('minor')}.",
                "Write %api=v1: the training operator runs the job where it is installed."
                if with_operator
                else "Name another cluster with %context=…, or run the cell on this machine with "
                "%backend=local: the training operator cannot run it.",
            )
        rendering = trainer_manifest if choice.api is TRAINER else indexed_manifest
        rendering.check(plan, settings)
        if choice.api is JOB and (held := _idle_gpus(plan)):
            return Choice(JOB, f"{choice.why}. {held}")
    return choice


async def _choice(asked: ApiName, plan: Plan, target: Target, *, named: bool) -> Choice:
    framework = plan.framework
    if asked is ApiName.JOB:
        return Choice(JOB, "%api=job asks for it" if named else "the setting api is job")
    if asked is ApiName.TRAINER:
        return Choice(
            TRAINER, "%api=trainer asks for it" if named else "the setting api is trainer"
        )
    if not isinstance(framework, OperatorKind):
        if asked is ApiName.V1 and named:
            raise SpecError(
                f"the training operator has no kind for {framework.name} jobs.",
                "Leave out %api.",
                directive="api",
            )
        return await _without_operator(
            target, f"the training operator has no kind for {framework.name} jobs"
        )
    if asked is ApiName.V1 and not isinstance(framework, StartedBySsh):
        return Choice(OPERATOR_V1)
    kind = manifest.kind_of(plan)
    if kind.plural in await target.kinds(f"/apis/{kind.api_version}"):
        return Choice(OPERATOR_V1)
    if by_ssh := await _by_ssh(plan, target):
        return by_ssh
    if asked is ApiName.V1:
        return Choice(OPERATOR_V1)  # which the API server refuses
    return await _without_operator(
        target, f"{target.client.access.source} does not support {kind.kind}"
    )


async def _without_operator(target: Target, why: str) -> Choice:
    """Return the choice for a job that the operator cannot run.

    Args:
        target: Cluster and namespace.
        why: The reason for which it cannot.
    """
    if not set(TRAINER.plurals) <= set(await target.kinds(TRAINER.path)):
        return Choice(JOB, why)
    if not all(await allowed(target.client, target.namespace, *_TRAINER_RIGHTS)):
        return Choice(JOB, f"{why}, and you may not create TrainJobs with a TrainingRuntime there")
    return Choice(TRAINER, why)


async def _by_ssh(plan: Plan, target: Target) -> Choice | None:
    """Return the choice of mpi-operator where a cluster has it; None if it does not."""
    kind = manifest.kind_of(plan)
    if not isinstance(plan.framework, StartedBySsh):
        return None
    if kind.plural not in await target.kinds(MPI_OPERATOR.path):
        return None
    source = target.client.access.source
    return Choice(MPI_OPERATOR, f"{source} does not support {kind.kind} of {kind.api_version}")


def _idle_gpus(plan: Plan) -> str:
    """Return a sentence about the GPUs of a launcher, without its stop; "" if it has none."""
    launcher = indexed_manifest.launcher_role(plan)
    gpu = plan.spec.asks(indexed_manifest.template_role(plan)).gpu
    if not launcher or not gpu or not gpu.count:
        return ""
    return (
        f"Its {launcher} holds as many GPUs as another replica, and uses none: "
        "all replicas of an Indexed Job have the same resources"
    )


async def server_version(target: Target) -> Manifest:
    """Return the server's version; {} if it is refused, which only disables new features."""
    try:
        return await target.client.known("/version")
    except Refused:
        return {}


def at_least(version: Manifest, major: int, minor: int) -> bool:
    """Compare a server's version, such as ``1.30+``, with a minimum version."""
    digits = [
        "".join(c for c in str(version.get(key, "")) if c.isdigit()) for key in ("major", "minor")
    ]
    return all(digits) and (int(digits[0]), int(digits[1])) >= (major, minor)
