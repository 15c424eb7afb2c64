"""Fixtures for tests of the tools that do harm: kubectl as somebody else, a pod to survive."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.namespace import Kubernetes, Namespace

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def kubectl_as(cluster: Kubernetes) -> Kubectl:
    """Runs kubectl with a kubeconfig of one's own; failures are returned, not raised."""

    def run(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = cluster.kubectl_argv("--kubeconfig", str(kubeconfig), *arguments)
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.fixture
def start_pod(local_cluster: Cluster, namespace: Namespace) -> Callable[..., None]:
    """Creates a pod that runs a shell command."""

    def start(name: str, command: str = "sleep 1000", **spec: Any) -> None:
        container = {
            "name": "main",
            "image": local_cluster.image("tools"),
            "command": ["/bin/busybox", "sh", "-c", command],
            **spec.pop("container", {}),
        }
        namespace.create_objects(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [container],
                    **spec,
                },
            }
        )

    return start
