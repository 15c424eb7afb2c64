"""A try of a job that its queue admits to other nodes than the last one, with a real Kueue.

Kueue writes the node selector of a flavor into the pod templates when it admits a job.
"""

from __future__ import annotations

import asyncio
import json
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import Team, made, rules
from tests.e2e.jobs.test_surviving import lose
from tests.e2e.policies import kueue
from tests.e2e.policies.test_queue import LONG, PATIENCE, delete, end
from tests.helpers.jobs import Ended, Recorder, wait

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.second("gateway"),
    pytest.mark.xdist_group("policies"),
]
FIRST = {"kubernetes.io/os": "linux"}
OTHER = {"kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]}
"""Labels of each node, so both flavors are the nodes of this cluster."""


def queue(name: str, first: str) -> dict[str, Any]:
    """A queue whose first flavor has so much memory."""
    return kueue.cluster_queue(name, **{f"{name}-first": first, f"{name}-other": "100Mi"})


def apply(cluster: Cluster, *objects: dict[str, Any]) -> None:
    for one in objects:
        argv = ("apply", "--server-side", "--force-conflicts", "-f", "-")
        cluster.kubectl(*argv, text=json.dumps(one))


@pytest.fixture
def flavored(queues: Cluster, queue_namespace: Namespace) -> Iterator[str]:
    """The name of a queue with two flavors, and of the LocalQueue of the namespace."""
    name = f"flavors-{queue_namespace.name[-6:]}"
    apply(
        queues,
        kueue.flavor(f"{name}-first", **FIRST),
        kueue.flavor(f"{name}-other", **OTHER),
        queue(name, "100Mi"),
        {
            "apiVersion": kueue.VERSION,
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": queue_namespace.name},
            "spec": {"clusterQueue": name},
        },
    )
    until(lambda: _active(queue_namespace, name), "the queue to be active", 90)
    yield name
    for kind, one in (
        ("clusterqueue", name),
        ("resourceflavor", f"{name}-first"),
        ("resourceflavor", f"{name}-other"),
    ):
        queues.kubectl("delete", kind, one, "--wait=false")


def _active(namespace: Namespace, name: str) -> bool:
    conditions = namespace.get(f"localqueue/{name}").get("status", {}).get("conditions", ())
    return any(one["type"] == "Active" and one["status"] == "True" for one in conditions)


def selector(team: Team) -> dict[str, str]:
    """The node selector in the template of the job."""
    spec = team.namespace.get("tfjob/moves")["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    return dict(spec.get("nodeSelector", {}))


def test_a_second_try_goes_to_the_nodes_of_its_own_admission(
    queues: Cluster,
    queue_namespace: Namespace,
    flavored: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    team = made(queue_namespace, tmp_path, monkeypatch, rules())
    selectors: list[dict[str, str]] = []

    async def runs(display: Recorder, work: asyncio.Task[Ended], times: int) -> None:
        await wait(
            lambda: work.done() or display.data("worker-0").count(b"here") == times, PATIENCE
        )
        assert not work.done(), (display.notices, work)
        selectors.append(await asyncio.to_thread(selector, team))

    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await runs(display, work, 1)
        # The nodes of the first flavor are for others now.
        await asyncio.to_thread(apply, queues, queue(flavored, "0"))
        await lose(team, "moves-worker-0", "evict")
        await runs(display, work, 2)
        await end(team, "moves-worker-0")

    head = f"%name=moves\n%framework=tensorflow\n%worker=1;%memory=64Mi\n%queue={flavored}\n"
    ended = team.run(f"{head}%retries=2\n{LONG}", during=during)
    assert ended.error is None, (ended.error, ended.display.notices)
    assert ended.display.data("worker-0") == b"here\nhere\n"
    assert selectors == [FIRST, OTHER]
    said = ended.display.notices
    assert "moves is started again" in said
    assert "is another one" not in said
    assert "was changed" not in said
    delete(team)
