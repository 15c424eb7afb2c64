"""Namespaces as administrators make them: Pod Security, quotas, limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.faults import policies
from tests.cluster.namespace import Namespace

pytestmark = pytest.mark.second("rig")
StartPod = Callable[..., None]


@pytest.fixture
def guarded(local_cluster: Cluster) -> Iterator[Callable[[str], Namespace]]:
    """Makes namespaces of a Pod Security level."""
    made = []

    def make(level: str) -> Namespace:
        namespace = Namespace(local_cluster, level, policies.pod_security(level))
        namespace.create()
        made.append(namespace)
        return namespace

    yield make
    for namespace in made:
        namespace.delete()


def pod(local_cluster: Cluster, context: dict[str, Any]) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": local_cluster.image("tools"),
        "command": ["/bin/busybox", "sh", "-c", "id -u"],
        "securityContext": context,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod"},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


def test_restricted_refuses_a_plain_pod_and_runs_one_that_complies(
    local_cluster: Cluster, guarded: Callable[[str], Namespace]
) -> None:
    namespace = guarded("restricted")

    with pytest.raises(ClusterError, match='violates PodSecurity "restricted:latest"'):
        namespace.create_objects(pod(local_cluster, {}))

    namespace.create_objects(pod(local_cluster, policies.restricted_container()))
    namespace.wait_for_pod("pod", "Succeeded")
    assert namespace.kubectl("logs", "pod") == "1000\n"


def test_baseline_refuses_privilege_and_runs_a_plain_pod(
    local_cluster: Cluster, guarded: Callable[[str], Namespace]
) -> None:
    namespace = guarded("baseline")

    with pytest.raises(ClusterError, match='violates PodSecurity "baseline:latest": privileged'):
        namespace.create_objects(pod(local_cluster, {"privileged": True}))

    namespace.create_objects(pod(local_cluster, {}))
    namespace.wait_for_pod("pod", "Succeeded")
    assert namespace.kubectl("logs", "pod") == "0\n"


def test_a_quota_counts_and_refuses_what_is_too_much(
    namespace: Namespace, start_pod: StartPod
) -> None:
    policies.put_quota(namespace, pods="5", requests_cpu="500m")

    with pytest.raises(ClusterError, match=r"must specify requests\.cpu"):
        start_pod("says-nothing")
    start_pod("fits", container={"resources": {"requests": {"cpu": "300m"}}})
    with pytest.raises(ClusterError, match=r"exceeded quota.*requested: requests\.cpu=300m"):
        start_pod("too-much", container={"resources": {"requests": {"cpu": "300m"}}})

    assert namespace.get("resourcequota/quota")["status"]["used"]["pods"] == "1"


def test_limits_give_defaults_and_refuse_what_exceeds_them(
    namespace: Namespace, start_pod: StartPod
) -> None:
    policies.put_limits(
        namespace, default={"memory": "32Mi", "cpu": "100m"}, maximum={"memory": "64Mi"}
    )

    start_pod("says-nothing")
    with pytest.raises(ClusterError, match="maximum memory usage per Container is 64Mi"):
        start_pod("too-much", container={"resources": {"limits": {"memory": "65Mi"}}})

    resources = namespace.get("pod/says-nothing")["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"memory": "32Mi", "cpu": "100m"}
    assert resources["requests"] == {"memory": "32Mi", "cpu": "100m"}


def test_a_quota_on_memory_is_met_by_the_defaults_of_limits(
    namespace: Namespace, start_pod: StartPod
) -> None:
    policies.put_quota(namespace, requests_memory="40Mi")
    policies.put_limits(namespace, default={"memory": "32Mi"})

    start_pod("first")
    with pytest.raises(ClusterError, match=r"exceeded quota.*requests\.memory=32Mi"):
        start_pod("second")
