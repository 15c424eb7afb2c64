"""A cluster beside the one of all other tests: there NetworkPolicies have an effect, and queues.

Not that one itself: rules for each pod would be written anew whenever a pod of any test starts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.layout import layout
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.gateway.place import DEPLOY
from tests.e2e.policies import kueue
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


@pytest.fixture(scope="package")
def queues(second_cluster: Cluster, with_kueue: None) -> Cluster:
    """A cluster with Kueue and the ClusterQueue that its administrator has made for the team."""
    kueue.start(second_cluster)
    for one in (
        kueue.flavor("any-node"),
        kueue.cluster_queue("team-a", **{"any-node": "100Mi"}),
        kueue.priority("high", 1000),
    ):
        content = json.dumps(one)
        second_cluster.kubectl("apply", "--server-side", "-f", "-", text=content)
    return second_cluster


@pytest.fixture
def queue_namespace(
    queues: Cluster, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Namespace]:
    """A team's namespace with the folder of its queue."""
    own = Namespace(queues, request.node.name)
    own.create()
    path = os.path.relpath(DEPLOY / "team/kueue", tmp_path.resolve())
    overlay = {"namespace": own.name, "resources": [path]}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(overlay))
    try:
        queues.kubectl("apply", "--server-side", "-k", str(tmp_path))
        until(lambda: _active(own), "the queue to be active", 90)
        yield own
    finally:
        own.delete()


def _active(own: Namespace) -> bool:
    conditions = own.get("localqueue/default").get("status", {}).get("conditions", ())
    return any(one["type"] == "Active" and one["status"] == "True" for one in conditions)
