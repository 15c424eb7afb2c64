"""What ``%queue`` and ``%priority`` ask of Kueue: labels of the job, and checks around it."""

from __future__ import annotations

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import trainer
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.rights import Right, allowed
from ciao_kernel.backends.kubernetes.states import queues
from ciao_kernel.backends.kubernetes.states.workloads import GROUP, served_version
from ciao_kernel.config import Settings
from ciao_kernel.errors import Refused, SpecError
from ciao_kernel.kube import responses
from ciao_kernel.kube.client import Object
from ciao_kernel.model import ClusterSpec

_PRIORITY = f"{GROUP}/priority-class"
_DEFAULT = "default"
"""Name of the LocalQueue of jobs that name none (Kueue, ``LocalQueueDefaulting``)."""
_READ = tuple(Right(verb, "localqueues", GROUP) for verb in ("get", "list"))
"""Optional rights: with them a wrong name is noticed before anything exists."""


def labels(cluster: ClusterSpec, settings: Settings) -> dict[str, str]:
    """Return the labels of a job, not of its pods: Kueue admits the job as a whole.

    Args:
        cluster: The cell's options.
        settings: The queue of cells that name none.
    """
    named = {queues.LABEL: name_of(cluster, settings), _PRIORITY: cluster.queue_priority}
    return {label: value for label, value in named.items() if value}


async def check(cluster: ClusterSpec, target: Target, settings: Settings) -> None:
    """Check that the queue and the priority of a cell exist, as far as this user may know.

    Args:
        cluster: The cell's options.
        target: Cluster and namespace.
        settings: The queue of cells that name none.

    Raises:
        SpecError: One of them does not exist, or the cluster has no Kueue.
        Refused, ClusterFault: From the client.
    """
    queue, priority = name_of(cluster, settings), cluster.queue_priority
    if not queue and not priority:
        return
    client, namespace = target.client, target.namespace
    directive = "queue" if queue else "priority"
    version = await served_version(client)
    if not version:
        raise SpecError(
            f"the cluster of {client.access.source} has no Kueue, so no job can wait in a queue.",
            f"Leave out %{directive}, or ask an administrator to install Kueue.",
            directive=directive,
        )
    if queue and all(await allowed(client, namespace, *_READ)):
        path = f"/apis/{GROUP}/{version}/namespaces/{namespace}/localqueues"
        if await client.find(f"{path}/{queue}") is None:
            raise await _no_queue(target, path, queue)
    if priority:
        try:
            found = await client.find(f"/apis/{GROUP}/{version}/workloadpriorityclasses/{priority}")
        except Refused as error:  # they belong to no namespace, so few users may read them
            if error.code != 403:
                raise
            return
        if found is None:
            raise SpecError(
                f"the cluster has no WorkloadPriorityClass {priority}.",
                "Name another with %priority=…; `kubectl get workloadpriorityclasses` lists them.",
                directive="priority",
            )


async def holds(target: Target, made: Objects) -> bool:
    """Return whether a new job would wait in a queue, without pods, until there is room.

    Called for a job for which a quota has no room now. Kueue suspends the jobs that it manages
    while they are created, so a dry run tells, also for the default queue of a namespace.

    Args:
        target: Cluster and namespace.
        made: The job.

    Raises:
        ClusterFault: From the client.
    """
    try:
        return apis.is_suspended(await target.client.create(made.path, made.job, dry_run=True))
    except Refused as error:
        # Of a TrainJob whose runtime does not exist yet there is no dry run.
        if not (trainer.RUNTIME_FIRST in error.message or responses.allows_no_trial(error)):
            return False
    return bool(queues.queue_of(made.job)) or await has_default(target)


async def has_default(target: Target) -> bool:
    """Return whether jobs without a queue get one; False if this user may not read queues.

    Called for a job for which a quota has no room, and before an image is made for some nodes.

    Args:
        target: Cluster and namespace.

    Raises:
        ClusterFault: From the client.
    """
    client, namespace = target.client, target.namespace
    try:
        version = await served_version(client)
        if not version or not all(await allowed(client, namespace, *_READ)):
            return False
        path = f"/apis/{GROUP}/{version}/namespaces/{namespace}/localqueues/{_DEFAULT}"
        return await client.find(path) is not None
    except Refused:
        return False


def ignored(job: Object, cluster: ClusterSpec, settings: Settings) -> str:
    """Return a sentence if the queue of a new job has no effect; "" otherwise.

    Kueue suspends each job that it manages at once, while it is created. It need not manage every
    kind: newer versions leave out those of the training operator by default.

    Args:
        job: The job, as the server returned it at its creation.
        cluster: The cell's options.
        settings: The queue of cells that name none.
    """
    queue = name_of(cluster, settings)
    if not queue or apis.is_suspended(job):
        return ""
    kind = str(job.get("kind") or "job")
    return (
        f"queue {queue} has no effect: Kueue does not manage {kind}s in the namespace "
        f"{get(job, 'metadata', 'namespace')}, so the job starts at once. An administrator "
        "can add the kind to integrations.frameworks in Kueue's configuration."
    )


async def _no_queue(target: Target, path: str, queue: str) -> SpecError:
    items = many(await target.client.get(path), "items")
    names = sorted(str(get(one, "metadata", "name")) for one in items)
    known = f"It has {', '.join(names)}" if names else "It has none"
    return SpecError(
        f"the namespace {target.namespace} has no queue {queue}.",
        f"{known}; an administrator makes a LocalQueue.",
        directive="queue",
    )


def name_of(cluster: ClusterSpec, settings: Settings) -> str:
    """Return the queue that a cell or a setting names; "" if none."""
    return cluster.queue or settings.queue
