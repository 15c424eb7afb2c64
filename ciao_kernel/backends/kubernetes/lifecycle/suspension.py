"""Suspends a job, so that its pods go and its place is free, and resumes it.

A job in a queue of Kueue belongs to Kueue, which would undo a change of the job itself: there the
Workload is made inactive (``spec.active``), and Kueue suspends the job. Otherwise the job's own
field ``suspend`` is set.
"""

from __future__ import annotations

import asyncio

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import Api, job_metadata
from ciao_kernel.backends.kubernetes.cluster import checks
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.rights import Right, allowed
from ciao_kernel.backends.kubernetes.states import queues, workloads
from ciao_kernel.errors import BackendError
from ciao_kernel.kube.client import Object
from ciao_kernel.model import Job, Manifest

_EVERY, _LOOKS = 0.5, 240
_PATCH_WORKLOADS = Right("patch", "workloads", workloads.GROUP)


async def set_suspended(target: Target, job: Job, item: Object, *, suspended: bool) -> None:
    """Suspend or resume a job.

    Args:
        target: Cluster and namespace.
        job: The job.
        item: The job's object.
        suspended: What the job is to be.

    Raises:
        BackendError: The job is so already.
        ClusterFault: The user may not change it.
        Refused: From the client.
    """
    what = "suspend" if suspended else "resume"
    queue = queues.queue_of(item)
    workload = await _workload(target, item, what) if queue else {}
    if is_suspended(item, workload) is suspended:
        already = "is suspended already" if suspended else "is not suspended"
        raise BackendError(f"{job.name} {already}.", f"`%ciao describe {job.reference}` shows it.")
    if workload:
        await checks.require_rights(target, f"{what} jobs in queues", _PATCH_WORKLOADS)
        version = await workloads.served_version(target.client)
        at = f"/apis/{workloads.GROUP}/{version}/namespaces/{job.place}/workloads"
        name = workload["metadata"]["name"]
        await target.client.patch(f"{at}/{name}", {"spec": {"active": not suspended}})
        return
    api = apis.of_job(job)
    await checks.require_rights(target, f"{what} jobs", _right_to_patch(job))
    if not suspended:
        await _pods_gone(target, job)
    path = job_metadata.path(job.place, job.resource, job.name)
    body = {"metadata": {"uid": job.uid}, "spec": change(api, suspended=suspended)}
    await target.client.patch(path, body)


def change(api: Api, *, suspended: bool) -> Manifest:
    """Return the part of a job's spec that suspends or resumes it."""
    field: Manifest = {"suspend": suspended}
    return {api.policy_field: field} if api.policy_field else field


def _right_to_patch(job: Job) -> Right:
    # A Role names a kind without its version.
    return Right("patch", job.resource.partition(".")[0], apis.of_job(job).group)


async def _pods_gone(target: Target, job: Job) -> None:
    """Wait for the end of a suspended job's pods: the training operator takes it for a failure.

    Pods that had ended before stay in some APIs, and do no harm.
    """
    path = f"/api/v1/namespaces/{job.place}/pods"
    for _ in range(_LOOKS):
        found = await target.client.get(path, labelSelector=job_metadata.selector(job))
        pods = (pod for pod in many(found, "items") if not _is_over(pod))
        if not any(job_metadata.is_part_of(pod, job.uid, job.run) for pod in pods):
            return
        await asyncio.sleep(_EVERY)
    raise BackendError(
        f"{job.name} cannot be resumed yet: its pods have not ended.",
        f"`%ciao describe {job.reference}` shows them; try again later.",
    )


def _is_over(pod: Object) -> bool:
    # One that is being deleted has failed by that; the operator may still see it.
    leaving = get(pod, "metadata", "deletionTimestamp")
    return not leaving and get(pod, "status", "phase") in ("Succeeded", "Failed")


def is_suspended(item: Object, workload: Object) -> bool:
    """Return whether somebody has suspended a job; one that waits in a queue is not.

    Args:
        item: The job's object.
        workload: Its Workload; ``{}`` if it is in no queue.
    """
    if workload:
        return get(workload, "spec", "active") is False
    return apis.is_suspended(item)


async def _workload(target: Target, item: Object, what: str) -> Object:
    """Return the Workload of a job in a queue; ``{}`` if Kueue does not manage the job."""
    read = list(workloads.READ)
    if not all(await allowed(target.client, target.namespace, *read)):
        raise await checks.lacking(target, f"{what} jobs in queues", [*read, _PATCH_WORKLOADS])
    return await workloads.of_job(target.client, target.namespace, str(item["metadata"]["uid"]))
