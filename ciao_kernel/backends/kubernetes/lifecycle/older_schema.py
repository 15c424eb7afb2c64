"""Creates a job whose kind may be older than a field of its pods.

The schemas of older operators have ``preStop`` without ``sleep``. The server drops the unknown
field, and then refuses each pod, because an empty ``preStop`` is not valid: no pod ever starts.
"""

from __future__ import annotations

import copy

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import MPI_OPERATOR, OPERATOR_V1, template_holder
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.errors import Refused
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.model import Manifest

_UNKNOWN = "strict decoding error"
"""Part of the server's message about fields that it does not know, with the path of each."""
_SLEEP = ".preStop.sleep"
_KNOWN = 3600.0
"""Seconds for which the answer is kept: operators are rarely updated."""


async def create(client: Client, path: str, job: Manifest) -> Object:
    """Create a job, without ``preStop`` if the schema of its kind lacks ``sleep``.

    The server tells that when it refuses the job, so a current operator costs no request. Other
    fields that it does not know are dropped as ever.

    Args:
        client: The API server.
        path: Path of the namespace's jobs of this kind.
        job: The job.

    Raises:
        Refused, ClusterFault: From the client.
    """
    if apis.of_item(job) not in (OPERATOR_V1, MPI_OPERATOR) or not _sleepers(job):
        return await client.create(path, job)
    key = f"older schema of {job['apiVersion']} {job['kind']}"
    known = client.cache.get(key)
    if known is None:
        try:
            return await client.create(path, job, strict=True)
        except Refused as error:
            if _UNKNOWN not in error.message:
                raise
            known = {"lacks_sleep": _SLEEP in error.message}
            client.cache.keep(key, known, _KNOWN)
    return await client.create(path, _without_sleep(job) if known["lacks_sleep"] else job)


def _without_sleep(job: Manifest) -> Manifest:
    job = copy.deepcopy(job)
    for container in _sleepers(job):
        container["lifecycle"].pop("preStop")
        if not container["lifecycle"]:
            del container["lifecycle"]
    return job


def _sleepers(job: Manifest) -> list[Manifest]:
    """Return the containers of a job that sleep before they are stopped."""
    return [
        container
        for pod in template_holder.pod_templates(job).values()
        for kind in ("containers", "initContainers")
        for container in many(pod, "spec", kind)
        if get(container, "lifecycle", "preStop", "sleep")
    ]
