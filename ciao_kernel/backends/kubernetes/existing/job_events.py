"""Reads the events of a job: those of its object, of its pods, and of the objects between them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.cluster.paging import pages
from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.errors import BackendError, Refused
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Manifest, Replica

_MOST_PODS = 12
"""Limit of objects whose events are requested one by one; for more, all events are read."""


async def read(
    client: Client, job: Job, pods: Mapping[Replica, Manifest]
) -> tuple[list[Manifest], str]:
    """Return the events of a job, and why they cannot be shown; "" if they can.

    Args:
        client: The API server.
        job: The job.
        pods: The pod of each replica that has one.
    """
    try:
        return await _events(client, job, pods), ""
    except BackendError as error:
        denied = isinstance(error, Refused) and error.code == 403
        why = f"you may not list events in {job.place}" if denied else error.message
        return [], f"events cannot be shown: {why.rstrip('.')}."


async def _events(client: Client, job: Job, pods: Mapping[Replica, Manifest]) -> list[Manifest]:
    path = f"/api/v1/namespaces/{job.place}/events"
    names = _names(job) | {str(pod["metadata"]["name"]) for pod in pods.values()}
    if len(names) <= _MOST_PODS:
        fields = [f"involvedObject.name={name}" for name in sorted(names)]
        lists = [pages(client, path, fieldSelector=field) for field in fields]
        return [event for found in await asyncio.gather(*lists) for event in found]
    found = await pages(client, path)
    return [one for one in found if get(one, "involvedObject", "name") in names]


def _names(job: Job) -> set[str]:
    """Return the names of a job's objects that follow from its own, also of deleted ones."""
    names, api = {job.name}, apis.of_job(job)
    for role in {replica.role for replica in job.replicas}:
        names |= {name for _, name in api.parents(job.name, role)}
    return names.union(*(api.pod_names(job.name, replica) for replica in job.replicas))
