"""Fields by which another scheduler starts all replicas of a job together, or none of them.

Volcano, and schedulers with the coscheduling plug-in, count the members of a PodGroup. Who makes it
differs: the operators and Trainer do, by the fields below; for an Indexed Job only Volcano does, by
annotations. ciao itself makes none, so that no further right is needed.

Sources: ``pkg/controller.v1/common/job.go`` of training-operator 1.9.3 and ``podgroup.go`` of
mpi-operator 0.8 (``runPolicy.schedulingPolicy``); ``pkg/runtime/framework/plugins/{coscheduling,
volcano}`` of Trainer 2.3 (``podGroupPolicy``; 2.0 has coscheduling alone);
``pkg/controllers/podgroup/pg_controller_handler.go`` of Volcano (annotations of a pod's owner,
since 1.12).
"""

from __future__ import annotations

from ciao_kernel.backends.kubernetes.apis import Api
from ciao_kernel.config import Settings
from ciao_kernel.errors import SettingError, SpecError
from ciao_kernel.model import JobSpec, Manifest

VOLCANO = "volcano"
"""The one scheduler with an API of its own; all others have scheduler-plugins' PodGroups, as for
the operator's flag ``--gang-scheduler-name``."""
_MEMBERS = "scheduling.volcano.sh/group-min-member"
_QUEUE = "scheduling.volcano.sh/queue-name"


def check(settings: Settings, api: Api, runtime: str) -> None:
    """Check that the scheduler of the settings can start a job of an API as a whole.

    Args:
        settings: Scheduler and queue.
        api: The API that runs the job.
        runtime: Name of the cluster's runtime that a TrainJob uses; "" if it brings its own.

    Raises:
        SettingError: There is a queue, but no Volcano.
        SpecError: The API has no field for it.
    """
    scheduler = settings.gang_scheduler
    if settings.gang_queue and scheduler != VOLCANO:
        raise SettingError(
            f"the setting gangQueue is {settings.gang_queue}, a queue of Volcano, and the setting "
            f"gangScheduler is {scheduler or 'empty'}.",
            "Set gangScheduler=volcano too, or empty gangQueue: `%ciao config gangQueue=`.",
        )
    if not scheduler:
        return
    remedy = "empty the setting: `%ciao config gangScheduler=`."
    if runtime:
        raise SpecError(
            f"a job with the ClusterTrainingRuntime {runtime} cannot be given the scheduler "
            f"{scheduler} of the setting gangScheduler: that runtime alone says how its replicas "
            "are started.",
            f"Ask an administrator for a podGroupPolicy in that runtime, and {remedy}",
            directive="api",
        )
    if not api.makes_pod_groups and scheduler != VOLCANO:
        raise SpecError(
            f"an Indexed Job has no field for the scheduler {scheduler} of the setting "
            "gangScheduler: that needs a PodGroup, which the operators and Trainer make.",
            f"Choose another API (%api=v1, %api=trainer) or a queue (%queue), or {remedy}",
            directive="api",
        )


def pod(template: Manifest, settings: Settings, api: Api) -> Manifest:
    """Return a pod for the scheduler of the settings; the same if they name none.

    Args:
        template: The pod, as :func:`~.pod_template.pod_template` returns it.
        settings: Scheduler and queue.
        api: The API that runs the job.
    """
    if not settings.gang_scheduler:
        return template
    meta = template["metadata"]
    if not api.makes_pod_groups and settings.gang_queue:
        # The user's own annotation counts.
        meta = {**meta, "annotations": {_QUEUE: settings.gang_queue, **meta["annotations"]}}
    spec = {**template["spec"], "schedulerName": settings.gang_scheduler}
    return {**template, "metadata": meta, "spec": spec}


def policy(spec: JobSpec, settings: Settings) -> Manifest:
    """Return what the run policy of an operator's job has for its gang; {} for none.

    The operator ignores it unless its flag names a scheduler. Volcano compares jobs by the priority
    of their PodGroups, and the training operator does not take that from the pods.

    Args:
        spec: The job's replicas.
        settings: Scheduler and queue.
    """
    if not settings.gang_scheduler:
        return {}
    found: Manifest = {"minAvailable": members(spec)}
    if settings.gang_queue:
        found["queue"] = settings.gang_queue
    if spec.cluster.priority_class:
        found["priorityClass"] = spec.cluster.priority_class
    return {"schedulingPolicy": found}


def runtime(made: Manifest, settings: Settings) -> Manifest:
    """Return a TrainJob's own runtime with the policy of its gang; the same if there is none.

    Trainer counts the members itself.

    Args:
        made: The runtime, as :mod:`.trainer_manifest` makes it.
        settings: Scheduler and queue.
    """
    if not settings.gang_scheduler:
        return made
    kind = VOLCANO if settings.gang_scheduler == VOLCANO else "coscheduling"
    template = made["spec"]["template"]
    if settings.gang_queue:
        template = {**template, "metadata": {"annotations": {_QUEUE: settings.gang_queue}}}
    return {**made, "spec": {**made["spec"], "podGroupPolicy": {kind: {}}, "template": template}}


def notes(spec: JobSpec, settings: Settings, api: Api) -> dict[str, str]:
    """Return the annotations of a job's object: Volcano reads them from the owner of pods.

    Args:
        spec: The job's replicas.
        settings: The scheduler.
        api: The API that runs the job.
    """
    if api.makes_pod_groups or not settings.gang_scheduler:
        return {}
    return {_MEMBERS: str(members(spec))}


def members(spec: JobSpec) -> int:
    """Return the number of replicas without which a job cannot begin."""
    every = sum(group.count for group in spec.groups)
    if not spec.elastic:
        return every
    workers = spec.count("worker")
    return every - workers + min(workers, spec.min_workers or 1)
