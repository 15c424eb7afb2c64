"""Kueue in a cluster: its own manifests as released, with what has to differ here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from tests.cluster import recipes
from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.programs import programs
from tests.cluster.waiting import until

NAMESPACE = "kueue-system"
_DEPLOYMENT = "deployment/kueue-controller-manager"
FRAMEWORKS = ("kubeflow.org/tfjob", "kubeflow.org/pytorchjob", "trainer.kubeflow.org/trainjob")
"""What deploy/team/README.md asks for."""
_OURS = ("tfjob", "pytorchjob", "trainjob", "clusterqueue", "cohort", "resourceflavor", "workload")
"""Kinds whose webhooks are kept: with those of others no pod at all starts while Kueue is away."""
VERSION = "kueue.x-k8s.io/v1beta2"


def start(cluster: Cluster) -> None:
    """Put it into the cluster unless it is there; its webhooks answer when it returns."""
    image = cluster.put(recipes.KUEUE)
    objects = [
        _changed(one, image)
        for one in _released(cluster)
        # A server of an aggregated API that is away lets no namespace go.
        if one["kind"] != "APIService"
    ]
    content = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=content)
    _wait(cluster)


def restart(cluster: Cluster) -> None:
    """Start it anew, because it has to find kinds that were installed after it.

    Its webhook of TrainJobs refuses every runtime that was not served when it started.
    """
    cluster.kubectl("rollout", "restart", _DEPLOYMENT, "-n", NAMESPACE)
    _wait(cluster)


def _wait(cluster: Cluster) -> None:
    cluster.kubectl("rollout", "status", _DEPLOYMENT, "-n", NAMESPACE, "--timeout=140s")
    until(lambda: _answers(cluster), "Kueue's webhooks to answer", 90, every=0.5)


@contextmanager
def places(cluster: Cluster) -> Iterator[None]:
    """Let Kueue tell the places in its queues for a while; it listens for that anyway."""
    (api,) = (
        one
        for one in _released(cluster)
        if one["kind"] == "APIService" and one["spec"]["version"] == "v1beta2"
    )
    name, content = api["metadata"]["name"], json.dumps(api)
    try:
        cluster.kubectl("apply", "--server-side", "-f", "-", text=content)
        cluster.kubectl("wait", "--for=condition=Available", f"apiservice/{name}", "--timeout=140s")
        yield
    finally:
        cluster.kubectl("delete", "apiservice", name, "--ignore-not-found")


def _released(cluster: Cluster) -> list[dict[str, Any]]:
    text = cluster.kubectl("kustomize", str(programs("kueue") / "config" / "default"))
    return list(yaml.safe_load_all(text))


def _answers(cluster: Cluster) -> bool:
    try:
        cluster.api.create("", flavor("probe"), dry_run=True)
    except ClusterError:
        return False
    return True


def flavor(name: str, **labels: str) -> dict[str, Any]:
    """A kind of nodes, by their labels: here, all of them."""
    made = {"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": name}}
    return {**made, "spec": {"nodeLabels": labels}} if labels else made


def cluster_queue(name: str, **memory: str) -> dict[str, Any]:
    """A queue with so much memory of each flavor for its jobs together, for any namespace."""
    # Each replica of ciao requests some cpu, and a queue admits nothing that it does not cover.
    quotas = [{"cpu": "64", "memory": amount} for amount in memory.values()]
    flavors = [
        {"name": one, "resources": [{"name": n, "nominalQuota": q} for n, q in quota.items()]}
        for one, quota in zip(memory, quotas, strict=True)
    ]
    group = {"coveredResources": ["cpu", "memory"], "flavors": flavors}
    spec = {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [group],
    }
    return {
        "apiVersion": VERSION,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": spec,
    }


def priority(name: str, value: int) -> dict[str, Any]:
    """A priority of jobs in queues."""
    meta = {"name": name}
    return {
        "apiVersion": VERSION,
        "kind": "WorkloadPriorityClass",
        "metadata": meta,
        "value": value,
    }


def _changed(one: dict[str, Any], image: str) -> dict[str, Any]:
    if one["kind"].endswith("WebhookConfiguration"):
        names = {f"{letter}{kind}.kb.io" for letter in "mv" for kind in _OURS}
        return {**one, "webhooks": [hook for hook in one["webhooks"] if hook["name"] in names]}
    if one["kind"] == "ConfigMap" and "controller_manager_config.yaml" in one.get("data", {}):
        settings = yaml.safe_load(one["data"]["controller_manager_config.yaml"])
        settings["leaderElection"] = {"leaderElect": False}
        settings["integrations"] = {"frameworks": list(FRAMEWORKS)}
        return {**one, "data": {"controller_manager_config.yaml": json.dumps(settings)}}
    if one["kind"] == "Deployment":
        spec = one["spec"]["template"]["spec"]
        # The image has no user of its own.
        spec["securityContext"]["runAsUser"] = 65532
        (container,) = spec["containers"]
        container["image"] = image
        container["imagePullPolicy"] = "IfNotPresent"
        # Half a processor, of two that the node has; and a busy node is no reason to end it.
        del container["resources"], container["livenessProbe"]
        container["readinessProbe"] |= {"initialDelaySeconds": 0, "periodSeconds": 1}
    return one
