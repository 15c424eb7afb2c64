"""What a job's objects say: states, reasons, and no trust in their form."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes import marks, status
from ciao_kernel.model import Job, Replica, ReplicaStatus, State

WORKER = Replica("worker", 0)
JOB = Job("job", "kubernetes", "tensorflow", (Replica("ps", 0), WORKER), 0.0, "team")


def pod(phase: str, state: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    containers = [{"name": "c", "restartCount": 0, "state": state}] if state else []
    return {
        "metadata": {"name": "p", "uid": "1", "creationTimestamp": "2026-11-21T10:00:00Z"},
        "status": {"phase": phase, "containerStatuses": containers, **more},
    }


def ended(code: int, reason: str = "Error") -> dict[str, Any]:
    at = "2026-11-21T10:00:05Z"
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at}}


@pytest.mark.parametrize(
    ("item", "state", "code", "reason"),
    [
        (pod("Pending"), State.PENDING, None, ""),
        (pod("Running", {"running": {"startedAt": "2026-11-21T10:00:01Z"}}), State.RUNNING, None,
         ""),
        (pod("Succeeded", ended(0, "Completed")), State.SUCCEEDED, 0, ""),
        (pod("Failed", ended(1)), State.FAILED, 1, ""),
        (pod("Failed", ended(137, "OOMKilled")), State.FAILED, -9, "OOMKilled"),
        (pod("Failed", reason="Evicted", message="low on memory"), State.FAILED, None,
         "Evicted: low on memory"),
        (pod("Pending", {"waiting": {"reason": "ErrImagePull", "message": "not\n found"}}),
         State.PENDING, None, "ErrImagePull: not found"),
        (pod("Pending", {"waiting": {"reason": "ContainerCreating"}}), State.PENDING, None, ""),
        (pod("Pending", conditions=[{"type": "PodScheduled", "status": "False",
                                     "reason": "Unschedulable", "message": "0/1 nodes"}]),
         State.PENDING, None, "unschedulable: 0/1 nodes"),
    ],
)  # fmt: skip
def test_a_pod(item: dict[str, Any], state: State, code: int | None, reason: str) -> None:
    one = status.of_pod(item, WORKER)
    assert (one.state, one.exit_code, one.reason) == (state, code, reason)


def job(*conditions: str, **more: Any) -> dict[str, Any]:
    at = "2026-11-21T10:00:09Z"
    held = [{"type": c, "status": "True", "lastTransitionTime": at, **more} for c in conditions]
    meta = {"name": "job", "namespace": "team", "annotations": {"ciao-kernel/decider": "worker-0"}}
    return {"metadata": meta, "status": {"conditions": held}}


def test_a_jobs_condition_decides_whatever_its_pods_do() -> None:
    seen = {WORKER: ReplicaStatus(WORKER, State.RUNNING)}
    assert status.of_job(JOB, job("Created"), {}).state is State.PENDING
    assert status.of_job(JOB, job("Created"), seen).state is State.RUNNING
    done = status.of_job(JOB, job("Created", "Running", "Succeeded"), seen)
    assert (done.state, done.decided_by) == (State.SUCCEEDED, WORKER)
    assert status.of_job(JOB, job("Suspended"), seen).reason == "Suspended"
    both = status.of_job(JOB, job("Succeeded", "Failed", message="why"), seen)
    assert (both.state, both.message) == (State.FAILED, "why")


@pytest.mark.parametrize(
    ("second", "reason", "policy", "state"),
    [
        (10, "", "Running", State.STOPPED),
        (9, "", "Running", State.FAILED),  # by itself, before the job's end
        (10, "OOMKilled", "Running", State.FAILED),
        (10, "", "None", State.FAILED),  # nobody asked it to end
    ],
)
@pytest.mark.parametrize("how", ["Succeeded", "Failed"])
def test_a_replica_that_ends_with_its_job_has_not_failed(
    second: int, reason: str, policy: str, state: State, how: str
) -> None:
    """torchrun ends with 1 when it is asked to end."""
    over = job(how) | {"spec": {"runPolicy": {"cleanPodPolicy": policy}}}
    since = status.stamp(f"2026-11-21T10:00:{second:02d}Z")
    worker = ReplicaStatus(WORKER, State.FAILED, since, 1, reason)
    first = replace(worker, replica=Replica("ps", 0), since=1.0)
    found = status.of_job(JOB, over, {WORKER: worker, first.replica: first}).replicas[1]
    assert (found.state, found.exit_code) == (state, 1)


def test_who_failed_first_has_failed_whatever_its_nodes_clock_says() -> None:
    late = status.stamp("2026-11-21T10:00:30Z")
    seen = {WORKER: ReplicaStatus(WORKER, State.FAILED, late, 1)}
    said = "its operator's own words"
    found = status.of_job(JOB, job("Failed", message=said), seen)
    assert (found.replicas[1].state, found.decided_by) == (State.FAILED, WORKER)
    assert found.message == ""


@pytest.mark.parametrize("code", [None, 1])
def test_replicas_that_the_operator_gives_up_are_not_to_blame(code: int | None) -> None:
    """Asked to end, one is gone with a signal's code, and another makes 1 of it."""
    late = status.stamp("2026-11-21T10:00:11Z")
    one = ReplicaStatus(WORKER, State.FAILED, late, 1)
    if code is None:
        one = ReplicaStatus(WORKER, State.STOPPED, late, None, status.DELETED)
    said = "Job job has failed because it has reached the specified backoff limit"
    found = status.of_job(JOB, job("Failed", message=said), {WORKER: one})
    assert (found.replicas[1].state, found.decided_by) == (State.STOPPED, None)
    assert found.message == said


def test_a_pod_that_somebody_deleted_is_named() -> None:
    at = status.stamp("2026-11-21T10:00:09Z")
    one = ReplicaStatus(WORKER, State.STOPPED, at, None, status.DELETED)
    found = status.of_job(JOB, job("Failed"), {WORKER: one})
    assert found.message == "somebody deleted the pod of worker-0."


def test_an_end_without_a_time_tells_nothing_of_who_was_stopped() -> None:
    over = job("Failed")
    for one in over["status"]["conditions"]:
        del one["lastTransitionTime"]
    failed = [ReplicaStatus(one, State.FAILED, 5.0 + one.index, 1) for one in JOB.replicas]
    found = status.of_job(JOB, over, {one.replica: one for one in failed})
    assert [one.state for one in found.replicas] == [State.FAILED] * 2


def test_the_replica_that_failed_first_is_to_blame() -> None:
    first = ReplicaStatus(WORKER, State.FAILED, 5.0, 1)
    later = ReplicaStatus(Replica("ps", 0), State.FAILED, 6.0, 1)
    found = status.of_job(JOB, job("Failed"), {WORKER: first, later.replica: later})
    assert found.decided_by == WORKER


def test_a_deadline_is_named() -> None:
    failed = ReplicaStatus(WORKER, State.FAILED, 5.0, None, "DeadlineExceeded: too long")
    found = status.of_job(JOB, job("Failed"), {WORKER: failed})
    assert "%deadline" in found.message
    said = "Job job has failed because it was active longer than specified deadline"
    assert status.of_job(JOB, job("Failed", message=said), {}).message == found.message


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ({marks.OPERATOR_ROLE: "worker", marks.OPERATOR_INDEX: "3"}, Replica("worker", 3)),
        ({marks.OPERATOR_ROLE: "launcher"}, Replica("launcher", 0)),
        ({marks.OPERATOR_ROLE: "worker"}, None),
        ({marks.OPERATOR_ROLE: "worker", marks.OPERATOR_INDEX: "x"}, None),
        ({}, None),
    ],
)
def test_which_replica_a_pod_is(labels: dict[str, str], found: Replica | None) -> None:
    assert marks.replica({"metadata": {"labels": labels}}) == found


def _broken(item: Any, chance: random.Random) -> Any:
    """The same object with some of its parts missing or of another type."""
    if chance.random() < 0.08:
        return chance.choice([None, 7, "text", [], {}, [None], {"a": 1}, True])
    if isinstance(item, dict):
        return {k: _broken(v, chance) for k, v in item.items() if chance.random() > 0.05}
    if isinstance(item, list):
        return [_broken(one, chance) for one in item]
    return item


def test_no_form_of_an_object_breaks_it() -> None:
    chance = random.Random(20261121)
    pods = [pod("Failed", ended(1)), pod("Running", {"running": {}}, conditions=[{"type": "x"}]),
            pod("Pending", {"waiting": {"reason": "ErrImagePull"}})]  # fmt: skip
    for _ in range(3000):
        item = {"metadata": {"uid": "1"}, "status": None}
        broken = _broken(chance.choice(pods)["status"], chance)
        one = status.of_pod({**item, "status": broken}, WORKER)
        assert isinstance(one.state, State)
        whole = {**job("Failed"), "status": _broken(job("Created", "Failed")["status"], chance)}
        assert isinstance(status.of_job(JOB, whole, {WORKER: one}).state, State)
