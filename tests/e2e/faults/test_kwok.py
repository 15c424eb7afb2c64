"""Fake nodes: a thousand pods, and no other pod lands there by mistake."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.faults import kwok
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until

# The nodes of both have the same names, and kwok is one.
pytestmark = [pytest.mark.second("rig"), pytest.mark.xdist_group("kwok")]
PODS = 1000


@pytest.fixture
def nodes(local_cluster: Cluster, with_kwok: None) -> Iterator[kwok.FakeNodes]:
    with kwok.FakeNodes(local_cluster, 4, {"nvidia.com/gpu": "8"}) as made:
        yield made


@pytest.mark.alone  # the API server has no time for others meanwhile
@pytest.mark.slow
def test_a_thousand_pods_run_on_fake_nodes(nodes: kwok.FakeNodes, namespace: Namespace) -> None:
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{number}"},
            "spec": {
                **kwok.placement(),
                "containers": [{"name": "main", "image": "nothing:1"}],
            },
        }
        for number in range(PODS)
    ]

    namespace.create_objects(*pods)
    until(
        lambda: namespace.kubectl(
            "get", "pods", "--field-selector=status.phase=Running", "-o", "name"
        ).count("\n") == PODS,
        "all to run",
        100,
        every=1,
    )  # fmt: skip

    on = {pod["spec"]["nodeName"] for pod in namespace.get("pods")["items"]}
    assert on == set(nodes.names)


def test_only_who_asks_lands_on_a_fake_node_with_gpus_to_give(
    nodes: kwok.FakeNodes,
    local_cluster: Cluster,
    namespace: Namespace,
    start_pod: Callable[..., None],
) -> None:
    start_pod("real")
    gpus = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
    for name in range(5):
        start_pod(f"fake-{name}", container=gpus, **kwok.placement())

    namespace.wait_for_pod("real", "Running")
    until(lambda: running(namespace) == 4, "four of five to run", 60)
    assert namespace.get("pod/real")["spec"]["nodeName"] == local_cluster.at.node
    # Not its events: the first text of a series stays, whatever the next try says.
    until(
        lambda: "Insufficient nvidia.com/gpu" in json.dumps(namespace.get("pods")),
        "the fifth to be refused", 60,
    )  # fmt: skip


def running(namespace: Namespace) -> int:
    return sum(
        pod["status"]["phase"] == "Running"
        for pod in namespace.get("pods")["items"]
        if pod["metadata"]["name"].startswith("fake-")
    )
