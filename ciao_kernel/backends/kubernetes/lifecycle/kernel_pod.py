"""The pod of this kernel, which may own jobs that must end with the kernel.

A kernel cannot always delete its jobs: it may be killed, and its token is invalid once its pod is
deleted. The cluster deletes everything that the pod owns, however the pod ends.
"""

from __future__ import annotations

import asyncio
import os
import socket

from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.errors import BackendError
from ciao_kernel.model import Manifest

_SOON = 1.0
"""Seconds for which a stop waits for an answer."""


async def owner(target: Target) -> Manifest | None:
    """Return the owner reference to this kernel's pod, for a job at a target.

    None if the kernel is not in a pod of that namespace, or cannot read its pod: an owner must be
    in the same namespace of the same cluster, otherwise its objects are deleted at once.
    """
    if target.client.access.namespace != target.namespace:
        return None
    name, pod = await _own(target)
    uid = get(pod, "metadata", "uid")
    if not isinstance(uid, str):
        return None
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}


async def ends(target: Target) -> bool:
    """Return whether this kernel's pod is being deleted; False without an answer in time."""
    try:
        async with asyncio.timeout(_SOON):
            _, pod = await _own(target)
    except TimeoutError:
        return False
    return get(pod, "metadata", "deletionTimestamp") is not None


async def _own(target: Target) -> tuple[str, Manifest | None]:
    """Return the name of this kernel's pod, and the pod; None if it cannot be read."""
    # A gateway sets the variable. Otherwise the host name is usually the pod's name.
    name = os.environ.get("KERNEL_POD_NAME") or socket.gethostname()
    access = target.client.access
    if access.context:  # from a kubeconfig, which may name any cluster
        return name, None
    try:
        return name, await target.client.find(f"/api/v1/namespaces/{access.namespace}/pods/{name}")
    except BackendError:
        return name, None
