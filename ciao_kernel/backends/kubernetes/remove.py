"""Deletes a job with all that belongs to it, and sees that it is gone."""

from __future__ import annotations

import asyncio
import time

from ciao_kernel.backends.kubernetes import marks, status
from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job

_GONE = 15.0
"""Seconds for which a stop waits until the pods are gone; what is left is said then."""


async def remove(client: Client, job: Job, path: str, uid: str) -> None:
    """Delete a job; what it owns goes with it.

    Args:
        client: The job's API server.
        job: Its name and namespace.
        path: Of its object.
        uid: Of its object: a later job of the same name stays.

    Raises:
        ClusterFault: Something is still there, or nobody answers.
    """
    await client.delete(path, uid=uid)
    pods = f"/api/v1/namespaces/{job.place}/pods"
    query = {"labelSelector": f"{marks.OPERATOR_JOB}={job.name}"}
    deadline = time.monotonic() + _GONE
    while True:
        listed = status.many(await client.get(pods, **query), "items")
        left = [pod["metadata"]["name"] for pod in listed if marks.is_part_of(pod, uid)]
        now = await client.find(path)
        if not left and (now is None or now["metadata"].get("uid") != uid):
            return
        if time.monotonic() > deadline:
            raise ClusterFault(
                f"{job.name} is deleted, but still there: {', '.join(left) or job.name}.",
                "Kubernetes removes them when their nodes answer.",
            )
        await asyncio.sleep(0.2)
