"""Chooses the API that runs a job: the training operator's, else TrainJobs, else Indexed Jobs.

A TrainJob brings a runtime of its own. A user without that right uses the cluster's runtime if it
is installed and allows what the cell asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ciao_kernel.backends.kubernetes.apis import (
    JOB,
    MPI_OPERATOR,
    OPERATOR_V1,
    TRAINER,
    Api,
    trainer,
)
from ciao_kernel.backends.kubernetes.cluster import checks
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.manifests import (
    gangs,
    indexed_rules,
    manifest,
    queue_request,
    shared_runtime,
)
from ciao_kernel.backends.kubernetes.manifests.runtime_overrides import Fields
from ciao_kernel.backends.kubernetes.rights import Right, allowed
from ciao_kernel.backends.kubernetes.submission import runtime_discovery
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
_CREATE = Right("create", "trainjobs", trainer.GROUP)
_NO_RUNTIME = "you may not create TrainJobs with a TrainingRuntime there"
_NO_OWN = "you may not create TrainingRuntimes there"
_NEVER_STARTED = (
    "Kueue before 0.17 admits a TrainJob of a ClusterTrainingRuntime but never starts it"
)
"""It takes the ``runtimePatches`` away: seen with 0.15; the types of 0.17 have them."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The API of a job."""

    api: Api
    why: str = ""
    """Why it is not the operator's, as part of a sentence; "" if it is."""
    runtime: str = ""
    """Name of the cluster's runtime that a TrainJob uses; "" if it brings its own."""
    fields: Fields | None = None
    """What it can change in that runtime."""
    caution: str = ""
    """What this cell asks for in vain, as a sentence without its stop; "" if there is nothing."""

    @property
    def notice(self) -> str:
        """Return the sentence that a cell shows; "" if there is nothing to tell."""
        name = _NAMES[self.api.name]
        if self.runtime:
            name = f"a TrainJob, with the ClusterTrainingRuntime {self.runtime}"
        caution = f" {self.caution}." if self.caution else ""
        return self.why and f"the job runs as {name}: {self.why}.{caution}"

    @property
    def rights(self) -> tuple[Right, ...]:
        """Return the rights that the job needs besides those of every job."""
        return () if self.runtime else self.api.rights

    @property
    def replaces_disrupted(self) -> bool:
        """True if the cluster itself replaces a pod that it disrupts (``%retries``)."""
        return self.api.replaces_disrupted and not self.runtime


async def choose(plan: Plan, target: Target, settings: Settings) -> Choice:
    """Return the API for a cell: its own, else the setting's; "auto" asks the cluster.

    Args:
        plan: The program to run, with its options.
        target: Cluster and namespace.
        settings: Used if the cell names no API.

    Raises:
        SpecError: A directive or a setting does not fit to the only possible API.
        SettingError: The settings of gangs contradict each other.
        ClusterFault: The cluster is too old for Indexed Jobs, of which TrainJobs consist.
        Refused: From the client.
    """
    asked = plan.spec.cluster.api or settings.api
    choice = await _choice(asked, plan, target, settings)
    gangs.check(settings, choice.api, choice.runtime)
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
                else "Name another cluster with %context=…, or run the job on this machine with "
                "%backend=local: the training operator cannot run it.",
            )
    manifest.rendering(choice.api, shared=bool(choice.runtime)).check(plan, settings)
    if choice.api is TRAINER and (lost := _not_scaled(plan)):
        return replace(choice, caution=lost)
    if (choice.api is JOB or choice.runtime) and (held := _idle_gpus(plan)):
        return replace(choice, caution=held)
    return choice


async def _choice(asked: ApiName, plan: Plan, target: Target, settings: Settings) -> Choice:
    framework, named = plan.framework, plan.spec.cluster.api is not None
    if asked is ApiName.JOB:
        return Choice(JOB, "%api=job asks for it" if named else "the setting api is job")
    if asked is ApiName.TRAINER:
        why = "%api=trainer asks for it" if named else "the setting api is trainer"
        shared = await _with_shared(plan, target, settings, why, insists=True)
        return shared if isinstance(shared, Choice) else Choice(TRAINER, why)
    if not isinstance(framework, OperatorKind):
        if asked is ApiName.V1 and named:
            raise SpecError(
                f"the training operator has no kind for {framework.name} jobs.",
                "Leave out %api.",
                directive="api",
            )
        why = f"the training operator has no kind for {framework.name} jobs"
        return await _without_operator(plan, target, settings, why)
    if asked is ApiName.V1 and not isinstance(framework, StartedBySsh):
        return Choice(OPERATOR_V1)
    kind = manifest.kind_of(plan)
    if kind.plural in await target.kinds(f"/apis/{kind.api_version}"):
        create = Right("create", kind.plural, OPERATOR_V1.group)
        if asked is ApiName.V1 or all(await allowed(target.client, target.namespace, create)):
            return Choice(OPERATOR_V1)
        why = f"you may not {create} in {target.namespace}"
        other = await _without_operator(plan, target, settings, why)
        if _can_run(other, plan, settings) and await _may_create(other, target):
            return other
        return Choice(OPERATOR_V1)  # the error about the missing rights shows the Role
    if by_ssh := await _by_ssh(plan, target):
        return by_ssh
    if asked is ApiName.V1:
        return Choice(OPERATOR_V1)  # which the API server refuses
    why = f"{target.client.access.source} does not support {kind.kind}"
    return await _without_operator(plan, target, settings, why)


async def _may_create(choice: Choice, target: Target) -> bool:
    """Return whether the user may create what a job of this choice consists of."""
    create = (Right("create", plural, choice.api.group) for plural in choice.api.plurals)
    return all(await allowed(target.client, target.namespace, *create, *choice.rights))


def _can_run(choice: Choice, plan: Plan, settings: Settings) -> bool:
    """Return whether the directives and settings of a cell fit to a choice."""
    form = manifest.rendering(choice.api, shared=bool(choice.runtime))
    try:
        gangs.check(settings, choice.api, choice.runtime)
        form.check(plan, settings)
    except SpecError:
        return False
    return True


async def _without_operator(plan: Plan, target: Target, settings: Settings, why: str) -> Choice:
    """Return the choice for a job that the operator cannot run, or not for this user.

    Args:
        plan: The program to run, with its options.
        target: Cluster and namespace.
        settings: Policies of cells that name none.
        why: The reason for that.
    """
    if not set(TRAINER.plurals) <= set(await target.kinds(TRAINER.path)):
        return Choice(JOB, why)
    shared = await _with_shared(plan, target, settings, why)
    if isinstance(shared, Choice):
        return shared
    return Choice(JOB, f"{why}, and {shared}") if shared else Choice(TRAINER, why)


async def _with_shared(
    plan: Plan, target: Target, settings: Settings, why: str, *, insists: bool = False
) -> Choice | str:
    """Return the choice of a TrainJob for a user who may not create runtimes.

    Args:
        plan: The program to run, with its options.
        target: Cluster and namespace.
        settings: Policies of cells that name none.
        why: The reason for a TrainJob.
        insists: Whether the job may be nothing else.

    Returns:
        "" if the user may; else why no runtime of the cluster can be used, as part of a sentence.

    Raises:
        SpecError: The job may be nothing else, and the runtime does not allow a directive.
    """
    may, *own = await allowed(target.client, target.namespace, _CREATE, *TRAINER.rights)
    if may and all(own):
        return ""
    lacks = next((one for one, has in zip(TRAINER.rights, own, strict=True) if not has), _CREATE)
    of_trainer = lacks.group == trainer.GROUP
    no_own = _NO_OWN if of_trainer else f"you may not {lacks.verb} {lacks.name} there"
    if not may or not set(TRAINER.plurals) <= set(await target.kinds(TRAINER.path)):
        return _NO_RUNTIME
    name = shared_runtime.name(plan.framework)
    fields = await runtime_discovery.fields(plan.framework, target)
    if isinstance(fields, str):
        return f"{_NO_RUNTIME} (and {fields})"
    restricted = (await checks.namespace_facts(target)).restricted
    if what := shared_runtime.obstacle(plan, settings, fields, restricted=restricted):
        if insists:
            raise SpecError(
                f"the ClusterTrainingRuntime {name} does not allow {what}, and {no_own}.",
                "Leave it out, choose another API (%api=auto), or ask an administrator for "
                "deploy/rbac/trainer-role.yaml.",
                directive="api",
            )
        return f"{_NO_RUNTIME} (and the ClusterTrainingRuntime {name} does not allow {what})"
    if settings.gang_scheduler and not insists:
        return f"{_NO_RUNTIME} (and one of the cluster takes no gangScheduler)"
    caution = ""
    if fields.patches and queue_request.name_of(plan.spec.cluster, settings):
        if not insists:
            return f"{_NO_RUNTIME} (and {_NEVER_STARTED})"
        caution = _NEVER_STARTED
    return Choice(TRAINER, f"{why}, and {no_own}", name, fields, caution)


async def _by_ssh(plan: Plan, target: Target) -> Choice | None:
    """Return the choice of mpi-operator where a cluster has it; None if it does not."""
    kind = manifest.kind_of(plan)
    if not isinstance(plan.framework, StartedBySsh):
        return None
    if kind.plural not in await target.kinds(MPI_OPERATOR.path):
        return None
    source = target.client.access.source
    return Choice(MPI_OPERATOR, f"{source} does not support {kind.kind} of {kind.api_version}")


def _not_scaled(plan: Plan) -> str:
    """Return a sentence about a %max without effect, without its stop; "" if there is none."""
    if (plan.spec.max_workers or 0) <= plan.spec.count("worker"):
        return ""
    return (
        f"%max={plan.spec.max_workers} has no effect: the number of workers of a TrainJob cannot "
        "be changed, that of an Indexed Job can (%api=job)"
    )


def _idle_gpus(plan: Plan) -> str:
    """Return a sentence about the GPUs of a launcher, without its stop; "" if it has none."""
    launcher = indexed_rules.launcher_role(plan)
    gpu = plan.spec.asks(indexed_rules.template_role(plan)).gpu
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
