"""A metrics server in a cluster: the released program, which reads this node's kubelet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.cluster import recipes
from tests.cluster.cluster import Cluster

_SPACE, _NAME, _PORT = "kube-system", "metrics-server", 10250
_API = "v1beta1.metrics.k8s.io"
_META = {"name": _NAME, "namespace": _SPACE}
_LABELS = {"k8s-app": _NAME}


@contextmanager
def served(cluster: Cluster) -> Iterator[None]:
    """Let a cluster serve metrics.k8s.io for a while.

    Without its server the API would be registered and not answer, and then no namespace goes.
    """
    items = _objects(cluster.put(recipes.METRICS_SERVER))
    content = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    try:
        cluster.kubectl("apply", "--server-side", "-f", "-", text=content)
        wait = ("--for=condition=Available", f"apiservice/{_API}", "--timeout=140s")
        cluster.kubectl("wait", *wait)
        yield
    finally:
        cluster.kubectl("delete", "-f", "-", "--ignore-not-found", text=content)


def _objects(image: str) -> list[dict[str, Any]]:
    """Return what manifests/base of its release has, with what has to differ here."""
    container = {
        "name": _NAME,
        "image": image,
        "args": [
            "--cert-dir=/tmp", f"--secure-port={_PORT}",
            "--kubelet-preferred-address-types=InternalIP", "--kubelet-insecure-tls",
            "--kubelet-use-node-status-port", "--metric-resolution=15s",
        ],
        "ports": [{"name": "https", "containerPort": _PORT}],
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "https", "scheme": "HTTPS"},
            # A processor that the test's own replica keeps busy must not make it unready.
            "periodSeconds": 1, "timeoutSeconds": 10, "failureThreshold": 30,
        },
        "resources": {"requests": {"cpu": "100m", "memory": "200Mi"}},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }  # fmt: skip
    pod = {
        "serviceAccountName": _NAME,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    rbac = "rbac.authorization.k8s.io/v1"
    rules = [
        {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
    ]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _META},
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": _NAME}, "rules": rules},
        _bound("ClusterRoleBinding", "own", {}, "ClusterRole", _NAME),
        _bound("ClusterRoleBinding", "asks", {}, "ClusterRole", "system:auth-delegator"),
        _bound(
            "RoleBinding", "knows", {"namespace": _SPACE}, "Role",
            "extension-apiserver-authentication-reader",
        ),
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": _META,
            "spec": {
                "selector": {"matchLabels": _LABELS},
                "template": {"metadata": {"labels": _LABELS}, "spec": pod},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _META,
            "spec": {"selector": _LABELS, "ports": [{"port": 443, "targetPort": "https"}]},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": _API},
            "spec": {
                "group": "metrics.k8s.io",
                "version": "v1beta1",
                "service": _META,
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
    ]  # fmt: skip


def _bound(
    kind: str, name: str, where: dict[str, str], role_kind: str, role: str
) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": f"{_NAME}-{name}", **where},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", **_META}],
    }
