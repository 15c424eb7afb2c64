"""Pods that the cluster evicts, by the Eviction API and by a drained node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from ciao_kernel.errors import JobFailed
from ciao_kernel.model import Owner, State
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from tests.cluster.cluster import Cluster
from tests.e2e.jobs.conftest import Team
from tests.e2e.jobs.test_endings import PATIENT
from tests.e2e.jobs.test_faults import (
    BOTH,
    ENDLESS,
    LAST_MASTER,
    LAST_WORDS,
    Work,
    end,
    well,
    whole,
)
from tests.e2e.jobs.test_interrupts import wrote
from tests.helpers.jobs import Ended, Recorder, wait

Figure = Callable[[str], None]
WHY = "evicted, as when its node is drained"


async def evict(team: Team, display: Recorder, *replicas: str) -> None:
    """Ask the Eviction API, as `kubectl drain` does, while replicas write."""
    await wrote(display, "000020", *replicas)
    assert display.job
    for replica in replicas:
        meta = {"name": f"{display.job.name}-{replica}", "namespace": team.namespace.name}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
        argv = ("create", "--raw", path, "-f", "-")
        await asyncio.to_thread(team.namespace.kubectl, *argv, text=json.dumps(body))


def contiguous(display: Recorder, replica: str) -> int:
    """Every line up to some line came once, in order, and then the last words; returns how many."""
    *got, last = display.data(replica).decode().splitlines()
    assert last == "last words"
    assert len(got) > 20
    assert got == [f"{n:06d}" for n in range(len(got))]
    return len(got)


async def wrote_again(display: Recorder, replica: str) -> None:
    """Wait until the successor of an evicted pod writes."""
    again = b"last words\n000000\n"
    await wait(lambda: b"\n000020\n" in display.data(replica).partition(again)[2])


def started_again(display: Recorder, replica: str) -> int:
    """All lines of an evicted pod came, and then all of its successor; returns how many."""
    got = display.data(replica).decode().splitlines()
    first = got[: got.index("last words")]
    assert len(first) > 20
    assert first == [f"{n:06d}" for n in range(len(first))]
    *second, last = got[len(first) + 1 :]
    assert last == "the end"
    assert len(second) > 20
    assert second == [f"{n:06d}" for n in range(len(second))]
    return len(got)


@pytest.mark.second("trials")
def test_an_evicted_replica_is_named_and_another_job_goes_on(team: Team, figure: Figure) -> None:
    """Without restarts the operator ends the job, and its other replica with it."""
    other, others = Recorder(), list[Ended]()

    async def during(display: Recorder, work: Work) -> None:
        registry = Registry({})
        session = Session(registry, Owner("another test"), team.settings())
        beside = asyncio.ensure_future(session.run(BOTH + ENDLESS, other, team.folder))
        await wrote(other, "000020", "worker-0", "worker-1")
        await wrote(display, "000020", "worker-0")
        await evict(team, display, "worker-1")
        await asyncio.wait({work}, timeout=120)
        seen = other.data("worker-1").count(b"\n")
        await wrote(other, f"{seen + 10:06d}", "worker-0", "worker-1")
        await end(team, other, "worker-0", "worker-1")
        others.append(Ended(other, await beside))
        await registry.close()

    ended = team.run(BOTH + LAST_WORDS + ENDLESS, during=during, **PATIENT)
    assert isinstance(ended.error, JobFailed)
    assert ended.error.message == f"the pod of worker-1 was {WHY}."
    lines = contiguous(ended.display, "worker-1") + contiguous(ended.display, "worker-0")
    well(team, others[0])
    beside = whole(other, "worker-0", "worker-1")
    figure(f"{lines} lines, 0 lost, 0 doubled; the other job: {beside}")


RESTARTED = (
    "%framework=pytorch\n%cleanPolicy=all\n%restartPolicy=OnFailure\n%runner=python\n"
    f"%master=1\n%worker=2\n{LAST_WORDS}"
)
MASTER = LAST_MASTER.replace(".accept()", "\n    server.accept()\n    server.accept()").replace(
    "    socket.create_server", "    server = socket.create_server"
)
"""The master waits for both workers."""


@pytest.mark.second("trials")
def test_an_evicted_replica_starts_again_while_the_others_write(team: Team, figure: Figure) -> None:
    async def during(display: Recorder, work: Work) -> None:
        await wrote(display, "000020", "master-0", "worker-0")
        await evict(team, display, "worker-1")
        await wrote_again(display, "worker-1")
        await end(team, display, "worker-0", "worker-1", "master-0")

    ended = team.run(RESTARTED + ENDLESS + MASTER, during=during)
    well(team, ended)
    lines = started_again(ended.display, "worker-1")
    rest = whole(ended.display, "master-0", "worker-0")
    figure(f"{lines} lines of the evicted replica, 0 lost, 0 doubled; the others: {rest}")


@pytest.mark.breaks_cluster
@pytest.mark.second("trials")
def test_a_drained_node(team: Team, broken: Cluster, figure: Figure) -> None:
    """Cordon, then evict: the successor waits until the node takes pods again."""
    node = broken.at.node

    async def during(display: Recorder, work: Work) -> None:
        await wrote(display, "000020", "master-0", "worker-0", "worker-1")
        await asyncio.to_thread(broken.kubectl, "cordon", node)
        await evict(team, display, "worker-1")
        await wait(lambda: "unschedulable" in waits(display))
        await asyncio.to_thread(broken.kubectl, "uncordon", node)
        await wrote_again(display, "worker-1")
        await end(team, display, "worker-0", "worker-1", "master-0")

    try:
        ended = team.run(RESTARTED + ENDLESS + MASTER, during=during)
    finally:
        broken.kubectl("uncordon", node)
    well(team, ended)
    lines = started_again(ended.display, "worker-1")
    rest = whole(ended.display, "master-0", "worker-0")
    figure(f"{lines} lines of the drained replica, 0 lost, 0 doubled; the others: {rest}")


def waits(display: Recorder) -> str:
    """Why a replica waits."""
    return " ".join(one.reason for one in display.status.replicas if one.state is State.PENDING)
