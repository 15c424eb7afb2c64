"""Fixtures for tests on a real cluster: the cluster, a namespace a test, evidence on failure."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.cluster import ground
from tests.cluster.cluster import Cluster
from tests.cluster.external import ExternalCluster
from tests.cluster.namespace import Namespace

_NAMESPACE = pytest.StashKey[Namespace]()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster | ExternalCluster]:
    """The cluster of CIAO_TEST_KUBECONFIG, or this machine's own, raised if it is not up."""
    if os.environ.get("CIAO_TEST_KUBECONFIG"):
        yield ExternalCluster()
        return
    reason = ground.unfit()
    if reason and not os.environ.get("CI"):
        pytest.skip(f"no cluster on this machine: {reason}; or set CIAO_TEST_KUBECONFIG")
    own = Cluster()
    was_up = own.node.pid is not None
    own.up()
    yield own
    if not was_up:
        own.down()


@pytest.fixture(scope="session")
def own_cluster(cluster: Cluster | ExternalCluster) -> Cluster:
    """The cluster whose parts may be broken: this machine's own, never somebody else's."""
    if isinstance(cluster, ExternalCluster):
        pytest.skip("it breaks parts of the cluster, and that of CIAO_TEST_KUBECONFIG is not ours")
    return cluster


@pytest.fixture
def namespace(
    cluster: Cluster | ExternalCluster, request: pytest.FixtureRequest
) -> Iterator[Namespace]:
    """A fresh namespace, deleted when the test is over."""
    made = Namespace(cluster, request.node.name)
    request.node.stash[_NAMESPACE] = made
    made.create()
    yield made
    made.delete()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add to a failure what the cluster knew at that moment: the namespace goes right after."""
    report = yield
    if report.when == "call" and report.failed and (made := item.stash.get(_NAMESPACE, None)):
        for title, text in made.evidence().items():
            report.sections.append((title, text))
    return report
