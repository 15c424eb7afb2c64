"""A cluster beside the one of all other tests: there NetworkPolicies have an effect, and queues.

Not that one itself: rules for each pod would be written anew whenever a pod of any test starts.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.layout import layout
from tests.e2e.policies.outside import Outside


@pytest.fixture(scope="package")
def second_cluster(raisable: None) -> Iterator[Cluster]:
    """The cluster, lowered afterwards unless somebody had raised it."""
    made = Cluster(layout("policies"))
    if not (was_up := made.node.pid is not None):
        made.up()
    yield made
    if not was_up:
        made.down()


@pytest.fixture(scope="package")
def enforced(second_cluster: Cluster, with_policies: None) -> Cluster:
    """The same with kube-router, which enforces policies."""
    if not second_cluster.well("policies"):
        second_cluster.start("policies")
    return second_cluster


@pytest.fixture(scope="package")
def outside(enforced: Cluster) -> Outside:
    """Machines outside this cluster, which its pods would reach but for the policies."""
    made = Outside(enforced)
    made.start()
    return made
