"""The state of an Indexed Job, from its conditions and its pods."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from ciao_kernel.backends.kubernetes.following import spec_changes
from ciao_kernel.backends.kubernetes.states import (
    foreseen,
    job_status,
    pending_reasons,
    sidecars,
    status,
)
from ciao_kernel.model import Job, Manifest, Replica, ReplicaStatus, State, Status

PS, ZERO, ONE = Replica("ps", 0), Replica("worker", 0), Replica("worker", 1)
REPLICAS = (PS, ZERO, ONE)
MINE = Job("mine", "kubernetes", "tensorflow", REPLICAS, 1.0, "team", resource="jobs", uid="u")


def job(*conditions: str, message: str = "", reason: str = "", **spec: Any) -> Manifest:
    notes = {"ciao-kernel/replicas": "ps=1 worker=2", "ciao-kernel/decider": "worker-0"}
    template = {"metadata": {"annotations": notes}, "spec": {"restartPolicy": "Never"}}
    rules = [{"succeededIndexes": "1"}]
    return {
        "metadata": {"name": "mine", "annotations": {**notes, "ciao-kernel/endless": "ps"}},
        "spec": {
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "successPolicy": {"rules": rules},
            "template": template,
            **spec,
        },
        "status": {
            "conditions": [
                {
                    "type": one,
                    "status": "True",
                    "reason": reason,
                    "message": message,
                    "lastTransitionTime": f"2026-11-21T11:00:{10 + number}Z",
                }
                for number, one in enumerate(conditions)
            ]
        },
    }


def pod(code: int | None = None) -> Manifest:
    how: Manifest = {"running": {}}
    if code is not None:
        how = {"terminated": {"exitCode": code, "finishedAt": "2026-11-21T11:00:09Z"}}
    phase = "Running" if code is None else "Failed" if code else "Succeeded"
    return {
        "metadata": {"name": "p"},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "program"}]},
        "status": {"phase": phase, "containerStatuses": [{"name": "program", "state": how}]},
    }


def seen(**codes: int | None) -> dict[Replica, ReplicaStatus]:
    return {one: status.of_pod(pod(code), one) for one, code in pods_by(codes).items()}


def pods_by(codes: dict[str, int | None]) -> dict[Replica, int | None]:
    names = {"ps": PS, "zero": ZERO, "one": ONE}
    return {names[name]: code for name, code in codes.items()}


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ((), State.RUNNING),
        (("SuccessCriteriaMet",), State.SUCCEEDED),
        (("SuccessCriteriaMet", "Complete"), State.SUCCEEDED),
        (("FailureTarget",), State.FAILED),
        (("FailureTarget", "Failed"), State.FAILED),
        (("Suspended",), State.PENDING),
    ],
)
def test_the_first_condition_about_the_end_decides(
    conditions: tuple[str, ...], state: State
) -> None:
    """The second one comes after the last pod, which may take its whole grace period."""
    now = job_status.of_job(MINE, job(*conditions), seen(ps=None, zero=None, one=None))
    assert now.state is state
    if state is State.FAILED:
        assert now.since == status.stamp("2026-11-21T11:00:10Z")


def test_a_reached_backoff_limit_is_the_failure_of_a_replica() -> None:
    message = "Job has reached the specified backoff limit"
    item = job("FailureTarget", message=message, reason="BackoffLimitExceeded")
    now = job_status.of_job(MINE, item, seen(ps=None, zero=None, one=3))
    assert (now.decided_by, now.message) == (ONE, "")


def test_a_deadline_is_no_failure_of_a_replica() -> None:
    message = "Job was active longer than specified deadline"
    item = job("FailureTarget", message=message, reason="DeadlineExceeded")
    now = job_status.of_job(MINE, item, seen(ps=None, zero=None, one=None))
    assert now.message == "the job ran longer than its %deadline."


def foreseen_failure(item: Manifest, **codes: int | None) -> Status | None:
    pods = {one: pod(code) for one, code in pods_by(codes).items()}
    now = job_status.of_job(MINE, item, seen(**codes))
    return foreseen.failure(item, now, pods)


def test_a_failure_is_foreseen_where_the_controller_comes_to_no_other_result() -> None:
    found = foreseen_failure(job(), ps=None, zero=None, one=3)
    assert found is not None
    assert (found.state, found.decided_by, found.foreseen) == (State.FAILED, ONE, True)
    assert foreseen_failure(job(), ps=None, zero=0, one=3) is None
    assert foreseen_failure(job(backoffLimit=6), ps=None, zero=None, one=3) is None
    assert foreseen_failure(job(suspend=True), ps=None, zero=None, one=3) is None
    assert foreseen_failure(job(managedBy="kueue"), ps=None, zero=None, one=3) is None


def test_programs_decide_where_other_containers_keep_the_pods() -> None:
    """Only the decider has to succeed, unless the job needs all workers."""
    codes: dict[str, int | None] = {"ps": None, "zero": 0, "one": 0}
    pods = {one: pod() for one in REPLICAS}
    now = job_status.of_job(MINE, job(), seen(**codes))
    assert sidecars.outcome(job(), now, [ZERO], pods) == (State.SUCCEEDED, ZERO)


def test_who_suspends_a_job_is_understood() -> None:
    assert spec_changes.between(job(suspend=False), job(suspend=True)) == [
        "it is suspended, and its pods are deleted until it is resumed"
    ]


class Silent:
    """A server without events."""

    async def get(self, path: str, **query: str) -> Manifest:
        return {"items": []}


def test_who_creates_no_pods_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_reasons, "_OPERATOR_SILENT", -1.0)

    async def main() -> Status:
        reasons = pending_reasons.PendingReasons(cast("Any", Silent()), MINE, 60.0, lambda: None)
        now = job_status.of_job(MINE, job(), {})
        found = reasons.explain(now, dict.fromkeys(REPLICAS), "u", operator_responded=False)
        await reasons.close()
        return found

    told = {one.reason for one in asyncio.run(main()).replicas}
    assert told == {"no pod yet: the Job controller of Kubernetes does not answer"}
