"""The pod that this kernel runs in, which may own jobs that are to end with it.

A kernel cannot be relied on to delete its jobs: it may be killed, and when its pod is deleted its
token is worth nothing any more. The cluster deletes what the pod owns, however the pod has gone.
"""

from __future__ import annotations

import asyncio
import os
import socket

from ciao_kernel.backends.kubernetes import status
from ciao_kernel.backends.kubernetes.target import Target
from ciao_kernel.errors import BackendError
from ciao_kernel.model import Manifest

_SOON = 1.0
"""Seconds for which a stop waits for an answer."""


async def owner(target: Target) -> Manifest | None:
    """Return the ownerReference to this kernel's pod, for a job at a target.

    None where the kernel is not in a pod of that namespace, or cannot see its pod: an owner has to
    be in the same namespace of the same cluster, or what it owns is deleted at once.
    """
    if target.client.access.namespace != target.namespace:
        return None
    name, pod = await _own(target)
    uid = status.get(pod, "metadata", "uid")
    if not isinstance(uid, str):
        return None
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}


async def ends(target: Target) -> bool:
    """Whether this kernel's pod is being deleted, as far as the API server says so soon."""
    try:
        async with asyncio.timeout(_SOON):
            _, pod = await _own(target)
    except TimeoutError:
        return False
    return status.get(pod, "metadata", "deletionTimestamp") is not None


async def _own(target: Target) -> tuple[str, Manifest | None]:
    """The name of this kernel's pod, and the pod; None where it cannot be seen."""
    # A gateway names the pod. Elsewhere the host has its name, as a rule.
    name = os.environ.get("KERNEL_POD_NAME") or socket.gethostname()
    access = target.client.access
    if access.context:  # of a kubeconfig: any cluster's
        return name, None
    try:
        return name, await target.client.find(f"/api/v1/namespaces/{access.namespace}/pods/{name}")
    except BackendError:
        return name, None
