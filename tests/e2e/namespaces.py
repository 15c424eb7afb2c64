"""A fresh namespace for a test, which a failure's report tells about."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.external import ExternalCluster
from tests.cluster.namespace import Namespace

OF_TEST = pytest.StashKey[Namespace]()


def fresh(
    cluster: Cluster | ExternalCluster, request: pytest.FixtureRequest
) -> Iterator[Namespace]:
    """Make a namespace in a cluster, and delete it when the test is over."""
    made = Namespace(cluster, request.node.name)
    request.node.stash[OF_TEST] = made
    made.create()
    yield made
    made.delete()
