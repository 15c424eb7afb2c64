"""The architecture of the nodes that replicas run on, for builders that make images for one."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, replace

from ciao_kernel import log
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.manifests import queue_request
from ciao_kernel.backends.kubernetes.manifests.pod_template import ARCHITECTURE
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.rights import Right, allowed
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError
from ciao_kernel.kube.quantities import quantity
from ciao_kernel.kube.tolerations import tolerates, toleration
from ciao_kernel.model import Manifest
from ciao_kernel.plugins import Plan

_log = logging.getLogger(__name__)

DEFAULT = "amd64"
_KNOWN = 300.0
"""Seconds for which the answer is kept: a cluster's kinds of nodes rarely change."""
_PAGE, _PAGES = 50, 4
"""Nodes in one answer, and answers for one kind: one node that fits is enough, and the list of a
large cluster has megabytes."""
_CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
"""The taint that the scheduler sees on a cordoned node."""
_FOR_NO_JOB = (_CORDONED["key"], "node-role.kubernetes.io/control-plane")
"""Taints that no queue or runtime makes jobs tolerate."""
_HARD = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class _Needs:
    """What the pods of a job need of a node.

    Args:
        selected: Labels.
        tolerations: The taints that they tolerate.
        devices: Number of devices, by resource; a node needs those of one resource.
        extended: True if others may add tolerations that nothing tells here.
    """

    selected: dict[str, str]
    tolerations: list[Manifest]
    devices: dict[str, int]
    extended: bool

    @property
    def first_page(self) -> int:
        """Nodes in the first answer: nearly every node fits a job that can tolerate all taints."""
        all_taints = any(
            one.get("operator") == "Exists" and not one.get("key") and not one.get("effect")
            for one in self.tolerations
        )
        return 1 if (self.extended or all_taints) and not self.devices else _PAGE

    def met_by(self, node: Manifest) -> bool:
        """Return whether a node can run such a pod once it has room."""
        taints = many(node, "spec", "taints")
        if get(node, "spec", "unschedulable"):
            taints = [*taints, _CORDONED]
        hard = (one for one in taints if one.get("effect") in _HARD and self._counts(one))
        if not all(tolerates(self.tolerations, one) for one in hard):
            return False
        has = get(node, "status", "allocatable")
        return not self.devices or any(
            (quantity(get(has, name)) or 0) >= count for name, count in self.devices.items()
        )

    def _counts(self, taint: Manifest) -> bool:
        return not self.extended or taint.get("key") in _FOR_NO_JOB


async def of_nodes(
    plan: Plan, target: Target, settings: Settings, patch: Manifest, *, shared: bool
) -> str:
    """Return the architecture for a job's images: from the cell, the settings, or the nodes.

    A cell names it with ``%nodeSelector=kubernetes.io/arch=arm64``. Of several architectures
    ``amd64`` is chosen, and only nodes that can run the job count, if there is one. A queue
    (Kueue's ResourceFlavor) and a runtime of the cluster may add tolerations, so few taints count
    for their jobs. ``amd64`` is also the answer if this user may not list nodes, or if no node is
    selected now: an autoscaler may add one.

    Args:
        plan: The job.
        target: Cluster and namespace.
        settings: The architecture, if it is set.
        patch: What ``%podPatch`` changes in each pod.
        shared: True if the pods come from a TrainingRuntime of the cluster.
    """
    needs = _needs(plan, patch, shared or bool(queue_request.name_of(plan.spec.cluster, settings)))
    if named := needs.selected.get(ARCHITECTURE) or settings.architecture:
        return named
    asked = json.dumps(asdict(needs), sort_keys=True)
    key = f"nodes' architecture {target.namespace} {asked}"  # a namespace may have its own queue
    if known := target.client.cache.get(key):
        return str(known["architecture"])
    found = DEFAULT
    with log.ignored(_log, "asking for the nodes' architecture", BackendError):
        if all(await allowed(target.client, target.namespace, Right("list", "nodes"))):
            found, fits = await _ask(target, needs)
            # Asked late: in most clusters the first node fits, whatever the queue tolerates.
            decided = needs.extended or (fits and found == DEFAULT)
            if not decided and await queue_request.has_default(target):
                found, _ = await _ask(target, replace(needs, extended=True))
    target.client.cache.keep(key, {"architecture": found}, _KNOWN)
    return found


def _needs(plan: Plan, patch: Manifest, extended: bool) -> _Needs:
    cluster = plan.spec.cluster
    devices = dict[str, int]()
    for group in plan.spec.groups:
        gpu = plan.spec.asks(group.role).gpu
        if gpu and gpu.count:
            devices[gpu.resource] = max(gpu.count, devices.get(gpu.resource, 0))
    tolerations = [toleration(text) for text in cluster.tolerations]
    tolerations += many(patch, "spec", "tolerations")
    # Many clusters let pods that request a device tolerate the taint of its name
    # (ExtendedResourceToleration).
    tolerations += [{"key": name, "operator": "Exists"} for name in devices]
    return _Needs(dict(cluster.node_selector), tolerations, devices, extended)


async def _ask(target: Target, needs: _Needs) -> tuple[str, bool]:
    """Return the architecture of the nodes that a job needs, and whether one of them fits."""
    labels = ["kubernetes.io/os=linux", *(f"{name}={to}" for name, to in needs.selected.items())]
    others = f"{ARCHITECTURE},{ARCHITECTURE}!={DEFAULT}"
    first = ""
    for wanted in (f"{ARCHITECTURE}={DEFAULT}", others):
        async for node in _nodes(target, ",".join([wanted, *labels]), needs.first_page):
            kind = str(get(node, "metadata", "labels", ARCHITECTURE) or "")
            if kind and needs.met_by(node):
                return kind, True
            first = first or kind
    return first or DEFAULT, False


async def _nodes(target: Target, selector: str, first: int) -> AsyncIterator[Manifest]:
    """Yield nodes with some labels, in pages: in most clusters the first one fits.

    A server continues a list in pages of one size only, so after a smaller first page the list
    begins anew.
    """
    query = {"labelSelector": selector}
    for size in (*([first] if first < _PAGE else []), *[_PAGE] * _PAGES):
        listed = await target.client.get("/api/v1/nodes", limit=str(size), **query)
        for node in many(listed, "items"):
            yield node
        more = get(listed, "metadata", "continue")
        if not more or not isinstance(more, str):
            return
        if size == _PAGE:
            query["continue"] = more
