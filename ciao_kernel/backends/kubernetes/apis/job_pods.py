"""The pods of a job's replicas: which of several pods is the one of its replica."""

from __future__ import annotations

from collections.abc import Iterable

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.model import Job, Manifest, Replica


def rank(pod: Manifest) -> tuple[bool, str]:
    """Return a sort key: the pod of a replica that counts is not being deleted, or the youngest.

    A replica has several pods while one is replaced, and where its controller keeps failed ones.
    """
    stays = get(pod, "metadata", "deletionTimestamp") is None
    return stays, str(get(pod, "metadata", "creationTimestamp") or "")


def of_replicas(job: Job, pods: Iterable[Manifest]) -> dict[Replica, Manifest]:
    """Return the pod of each replica that has one.

    Args:
        job: The job.
        pods: Pods, also of other jobs.
    """
    found: dict[Replica, Manifest] = {}
    for pod in sorted(pods, key=rank):
        replica = job_metadata.replica(pod)
        if replica is not None and job_metadata.is_part_of(pod, job.uid, job.run):
            found[replica] = pod
    return found
