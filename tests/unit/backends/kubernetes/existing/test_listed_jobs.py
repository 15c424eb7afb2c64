"""The statuses of listed jobs: which of several pods is the one of its replica."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import JOB, job_metadata, replica_list
from ciao_kernel.backends.kubernetes.apis.indexed_job import INDEX
from ciao_kernel.backends.kubernetes.existing import listed_jobs
from ciao_kernel.kube.server_clock import ServerClock
from ciao_kernel.model import Job, Replica, State

WORKER = Replica("worker", 0)
MNIST = Job("mnist", "kubernetes", "tensorflow", (WORKER,), 0.0, "team", resource="jobs", uid="u")
ITEM = {"metadata": {"name": "mnist", "namespace": "team", "uid": "u"}, "spec": {"template": {}}}


def pod(name: str, phase: str, second: int, *, leaving: bool = False) -> dict[str, Any]:
    at = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC).isoformat()
    meta = {
        "name": name,
        "namespace": "team",
        "uid": name,
        "creationTimestamp": at,
        "labels": {JOB.job_label: "mnist", **job_metadata.labels("mnist")},
        "annotations": {INDEX: "0", replica_list.ANNOTATION: "worker=1"},
        "ownerReferences": [{"uid": "u"}],
    }
    if leaving:
        meta["deletionTimestamp"] = at
    return {"metadata": meta, "spec": {"containers": [{"name": "x"}]}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("pods", "state"),
    [
        # A Job keeps failed pods; names end at random.
        ([pod("mnist-0-z", "Failed", 1), pod("mnist-0-a", "Succeeded", 2)], State.SUCCEEDED),
        ([pod("mnist-0-a", "Failed", 1), pod("mnist-0-z", "Succeeded", 2)], State.SUCCEEDED),
        (
            [pod("mnist-0-a", "Succeeded", 2, leaving=True), pod("mnist-0-z", "Failed", 1)],
            State.FAILED,
        ),
    ],
)
def test_of_several_pods_the_youngest_counts_that_stays(
    pods: list[dict[str, Any]], state: State
) -> None:
    for order in itertools.permutations(pods):
        by_job = listed_jobs.by_job(list(order))
        _, status = listed_jobs.with_status(MNIST, ITEM, by_job, ServerClock())
        assert [(one.replica, one.state) for one in status.replicas] == [(WORKER, state)]
