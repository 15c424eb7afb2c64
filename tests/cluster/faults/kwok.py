"""Nodes that are not there: kwok says that they are, and that pods on them run.

So a thousand pods cost nothing but their entries in the API server. Nothing runs in them: no logs,
no exec.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from tests.cluster.cluster import Cluster
from tests.cluster.waiting import until

_MARK = "type"  # parts.py tells kwok to manage the nodes with type=kwok, and no others
_TAINT = {"key": "kwok", "value": "fake", "effect": "NoSchedule"}
PODS = 250  # on each node


class FakeNodes:
    """Fake nodes, as a context manager; kwok runs as long as they are there.

    Args:
        cluster: where.
        count: how many; each takes 250 pods.
        allocatable: further resources of each, such as `nvidia.com/gpu`.
    """

    def __init__(
        self, cluster: Cluster, count: int, allocatable: dict[str, str] | None = None
    ) -> None:
        self._cluster = cluster
        self.names = [f"fake-{number}" for number in range(count)]
        self._resources = {"cpu": "64", "memory": "256Gi", "pods": str(PODS), **(allocatable or {})}

    def __enter__(self) -> FakeNodes:
        self._cluster.start("kwok")
        for name in self.names:
            self._cluster.api.create("", self._node(name))
        until(lambda: self.ready() == len(self.names), "the fake nodes to be ready", 60)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the pods on them, the nodes, and kwok: without it no fake pod would ever end."""
        namespaces = set(self._cluster.kubectl(
            "get", "pods", "--all-namespaces", "-o",
            'jsonpath={range .items[*]}{.spec.nodeName}/{.metadata.namespace}{"\\n"}{end}',
        ).split())  # fmt: skip
        for name, _, namespace in (entry.partition("/") for entry in namespaces):
            if name in self.names:  # in one request: a thousand would take ten seconds
                query = f"fieldSelector=spec.nodeName%3D{name}&gracePeriodSeconds=0"
                pods = f"/api/v1/namespaces/{namespace}/pods"
                self._cluster.kubectl("delete", "--raw", f"{pods}?{query}")
        self._cluster.kubectl("delete", "nodes", "-l", f"{_MARK}=kwok", "--ignore-not-found")
        self._cluster.stop("kwok")

    def ready(self) -> int:
        """Return how many of them are ready."""
        found = self._cluster.api.get("", "nodes", "-l", f"{_MARK}=kwok")
        return sum(
            condition["status"] == "True"
            for node in found["items"]
            for condition in node["status"].get("conditions", ())
            if condition["type"] == "Ready"
        )

    def _node(self, name: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {_MARK: "kwok", "kubernetes.io/hostname": name},
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
            "spec": {"taints": [_TAINT]},
            "status": {"capacity": self._resources, "allocatable": self._resources},
        }


def placement() -> dict[str, Any]:
    """Return what stands in the spec of a pod that shall land on a fake node."""
    return {"nodeSelector": {_MARK: "kwok"}, "tolerations": [{**_TAINT, "operator": "Equal"}]}
