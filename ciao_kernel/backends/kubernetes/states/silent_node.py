"""A node that does not answer, as the pods on it show that: nobody knows how they are.

The node controller changes the condition of such a pod alone, not that of its containers, and gives
no reason (Kubernetes, pkg/controller/util/node: ``MarkPodsNotReady``). Older ones give the pod the
reason ``NodeLost``. After five minutes the pod is deleted, and stays until the node is removed.
"""

from __future__ import annotations

from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.model import Manifest

SILENT = "its node does not answer"
"""The reason of a replica that runs as far as anybody knows."""
LOST = "lost with its node, which did not answer"
"""The same after its pod is gone, as part of a sentence; newer clusters say who deleted it."""


def has(pod: Manifest) -> bool:
    """Return whether the node of a pod does not answer."""
    if get(pod, "status", "reason") == "NodeLost":
        return True
    found = {str(one.get("type")): one for one in many(pod, "status", "conditions")}
    unready = get(found.get("Ready"), "status") == "False"
    ready = get(found.get("ContainersReady"), "status") == "True"
    return unready and ready and not get(found.get("Ready"), "reason")
