"""The state of a TrainJob, from its conditions, its pods and its events."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import template_holder
from ciao_kernel.backends.kubernetes.states import foreseen, job_status
from ciao_kernel.backends.kubernetes.states.pending_reasons import PendingReasons
from ciao_kernel.model import Job, Manifest, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.progress import Done

PS, ZERO, ONE = Replica("ps", 0), Replica("worker", 0), Replica("worker", 1)
REPLICAS = (PS, ZERO, ONE)
MINE = Job("mine", "kubernetes", "tensorflow", REPLICAS, 1.0, "team", resource="trainjobs", uid="u")


def job(condition: str = "", value: str = "True", **spec: Any) -> Manifest:
    notes = {
        "ciao-kernel/replicas": "ps=1 worker=2",
        "ciao-kernel/decider": "worker-0",
        "ciao-kernel/endless": "ps",
    }
    one = {
        "type": condition,
        "status": value,
        "reason": "FailedJobs" if condition == "Failed" else "Some",
        "message": "jobset failed due to job failures (first failed job: mine-worker-0)",
        "lastTransitionTime": "2026-11-21T11:00:10Z",
    }
    runtime = {"kind": "TrainingRuntime", "name": "mine-1"}
    return {
        "metadata": {"name": "mine", "annotations": notes},
        "spec": {
            "runtimeRef": runtime,
            "managedBy": "trainer.kubeflow.org/trainjob-controller",
            "suspend": False,
            **spec,
        },
        "status": {"conditions": [one] if condition else []},
    }


def ended(replica: Replica, code: int | None) -> ReplicaStatus:
    if code is None:
        return ReplicaStatus(replica, State.RUNNING, 1.0)
    return ReplicaStatus(replica, State.FAILED if code else State.SUCCEEDED, 2.0, code)


@pytest.mark.parametrize(
    ("made", "state"), [("09", State.FAILED), ("10", State.RUNNING), ("11", State.RUNNING)]
)
def test_the_end_of_an_earlier_try_does_not_count(made: str, state: State) -> None:
    item = job("Failed")
    item["metadata"]["creationTimestamp"] = f"2026-11-21T11:00:{made}Z"
    item["metadata"]["annotations"]["ciao-kernel/try"] = "2"
    now = job_status.of_job(MINE, item, {one: ended(one, None) for one in REPLICAS})
    assert now.state is state


@pytest.mark.parametrize("condition", ["Complete", "Failed"])
def test_a_first_try_ends_also_if_trainers_clock_is_behind(condition: str) -> None:
    item = job(condition)
    item["metadata"]["creationTimestamp"] = "2026-11-21T11:00:11Z"
    now = job_status.of_job(MINE, item, {one: ended(one, None) for one in REPLICAS})
    assert now.state.over


@pytest.mark.parametrize(
    ("item", "codes", "state", "by"),
    [
        (job(), (None, None, None), State.RUNNING, None),
        (job("Complete"), (None, 0, None), State.SUCCEEDED, ZERO),
        (job("Failed"), (None, None, 3), State.FAILED, ONE),
        (job("Suspended"), (None, None, None), State.PENDING, None),
        (job("Suspended", "False"), (None, None, None), State.RUNNING, None),
    ],
)
def test_the_condition_decides(
    item: Manifest, codes: tuple[int | None, ...], state: State, by: Replica | None
) -> None:
    seen = {one: ended(one, code) for one, code in zip(REPLICAS, codes, strict=True)}
    now = job_status.of_job(MINE, item, seen)
    assert (now.state, now.decided_by) == (state, by)
    assert "first failed job" not in now.message or state is not State.FAILED


def pod(phase: str) -> Manifest:
    return {"metadata": {"name": "p"}, "spec": {"containers": []}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("item", "foreseen_by"),
    [
        (job(), ONE),
        (job("Suspended", "False"), ONE),
        (job(suspend=True), None),
        (job(managedBy="kueue.x-k8s.io/multikueue"), None),
    ],
)
def test_a_failure_is_seen_before_trainer_says_so(
    item: Manifest, foreseen_by: Replica | None
) -> None:
    replicas = (ended(PS, None), ended(ZERO, None), ended(ONE, 3))
    pods: dict[Replica, Manifest | None] = {
        PS: pod("Running"),
        ZERO: pod("Running"),
        ONE: pod("Failed"),
    }
    found = foreseen.failure(item, Status(State.RUNNING, replicas), pods)
    assert (found.decided_by if found else None) == foreseen_by
    restarts = {**item["metadata"]["annotations"], "ciao-kernel/rules": "restarts"}
    again = {**item, "metadata": {"name": "mine", "annotations": restarts}}
    assert foreseen.failure(again, Status(State.RUNNING, replicas), pods) is None


class Server:
    def __init__(self, reason: str) -> None:
        self.reason = reason

    async def get(self, path: str, **query: str) -> Any:
        event = {"reason": self.reason, "type": "Warning", "message": "JobSet name is too long"}
        return {"items": [event]}


@pytest.mark.parametrize(
    ("reason", "state"),
    [("TrainJobResourcesCreationFailed", State.FAILED), ("Other", State.PENDING)],
)
def test_a_job_whose_pods_cannot_be_created_fails_without_a_condition(
    reason: str, state: State
) -> None:
    async def main() -> Status:
        told = asyncio.Event()
        reasons = PendingReasons(Server(reason), MINE, 0.0, told.set)  # type: ignore[arg-type]
        waiting = Status(State.PENDING, tuple(ReplicaStatus(one) for one in REPLICAS))
        none: dict[Replica, Manifest | None] = dict.fromkeys(REPLICAS)
        try:
            assert reasons.explain(waiting, none, "u").state is State.PENDING
            await told.wait()
            return reasons.explain(waiting, none, "u")
        finally:
            await reasons.close()

    now = asyncio.run(main())
    assert now.state is state
    assert {one.reason for one in now.replicas} == {f"{reason}: JobSet name is too long"}
    if state is State.FAILED:
        assert now.hopeless
        assert now.message.startswith("Kubeflow Trainer cannot create its pods: ")


def test_the_runtime_of_somebody_else_holds_nothing_of_ciao() -> None:
    assert template_holder.path(job(), "team").endswith("/namespaces/team/trainingruntimes/mine-1")
    shared = job(runtimeRef={"kind": "ClusterTrainingRuntime", "name": "torch"})
    assert template_holder.path(shared, "team") == ""


@pytest.mark.parametrize(
    ("reported", "told"),
    [
        (None, None),
        ("soon", None),
        ({"estimatedRemainingSeconds": 90}, None),
        ({"progressPercentage": 45, "estimatedRemainingSeconds": 90}, Done(0.45, 90.0)),
        ({"progressPercentage": 0}, Done(0.0)),
        ({"progressPercentage": 100, "estimatedRemainingSeconds": -1}, Done(1.0)),
        ({"progressPercentage": 101}, None),
        ({"progressPercentage": True}, None),
        ({"progressPercentage": "45"}, None),
    ],
)
def test_what_a_program_has_told_trainer(reported: Any, told: Done | None) -> None:
    item = job()
    if reported is not None:
        item["status"]["trainerStatus"] = reported
    seen = {one: ended(one, None) for one in REPLICAS}
    now = job_status.of_job(MINE, item, seen)
    assert (now.state, now.told) == (State.RUNNING, told)
    item["status"]["conditions"] = job("Complete")["status"]["conditions"]
    assert job_status.of_job(MINE, item, seen).told is None
