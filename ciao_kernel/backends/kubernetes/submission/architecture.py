"""The architecture of the nodes that replicas run on, for builders that make images for one."""

from __future__ import annotations

import json
import logging

from ciao_kernel import log
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.manifests.pod_template import ARCHITECTURE
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.rights import Right, allowed
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError
from ciao_kernel.plugins import Plan

_log = logging.getLogger(__name__)

DEFAULT = "amd64"
_KNOWN = 300.0
"""Seconds for which the answer is kept: a cluster's kinds of nodes rarely change."""


async def of_nodes(plan: Plan, target: Target, settings: Settings) -> str:
    """Return the architecture for a job's images: from the cell, the settings, or the nodes.

    A cell names it with ``%nodeSelector=kubernetes.io/arch=arm64``. Of several architectures
    ``amd64`` is chosen. It is also the answer if this user may not list nodes, or if no node fits
    now: an autoscaler may add one.
    """
    selected = dict(plan.spec.cluster.node_selector)
    if named := selected.get(ARCHITECTURE) or settings.architecture:
        return named
    key = f"nodes' architecture {json.dumps(selected, sort_keys=True)}"
    if known := target.client.cache.get(key):
        return str(known["architecture"])
    found = DEFAULT
    with log.ignored(_log, "asking for the nodes' architecture", BackendError):
        if all(await allowed(target.client, target.namespace, Right("list", "nodes"))):
            found = await _ask(target, selected) or DEFAULT
    target.client.cache.keep(key, {"architecture": found}, _KNOWN)
    return found


async def _ask(target: Target, selected: dict[str, str]) -> str:
    """Return the architecture of the nodes with some labels; "" if there is no such node."""
    rest = ["kubernetes.io/os=linux", *(f"{name}={value}" for name, value in selected.items())]
    for wanted in (f"{ARCHITECTURE}={DEFAULT}", ARCHITECTURE):
        selector = ",".join([wanted, *rest])
        # One node is enough; a large cluster's list has megabytes.
        listed = await target.client.get("/api/v1/nodes", labelSelector=selector, limit="1")
        for node in many(listed, "items"):
            if label := get(node, "metadata", "labels", ARCHITECTURE):
                return str(label)
    return ""
