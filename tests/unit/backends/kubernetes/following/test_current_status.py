"""When the cell of a failed job may end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.following import current_status
from ciao_kernel.backends.kubernetes.following.current_status import CurrentStatus
from ciao_kernel.backends.kubernetes.states import partial_start, status
from ciao_kernel.kube.server_clock import ServerClock
from ciao_kernel.model import Job, Replica, State, Status
from tests.unit.backends.kubernetes.states.test_foreseen import job, pod

ZERO, ONE = Replica("worker", 0), Replica("worker", 1)
JOB = Job("mine", "kubernetes", "tensorflow", (ZERO, ONE), 0.0, "team", uid="j")


class Members:
    """The replicas of a job, as a tracker shows them."""

    def __init__(self, **codes: int | None) -> None:
        self.pods = {Replica("worker", int(one[1:])): pod(code) for one, code in codes.items()}

    def present(self) -> dict[Replica, Any]:
        return self.pods

    def statuses(self) -> dict[Replica, Any]:
        return {replica: status.of_pod(one, replica) for replica, one in self.pods.items()}


def looks(*members: Members, item: Any = None) -> tuple[Status, bool]:
    """The last status of several looks, and whether the cell may end then."""

    async def main() -> tuple[Status, bool]:
        server: Any = SimpleNamespace(clock=ServerClock())
        current = CurrentStatus(server, JOB, 60.0, lambda: None)
        for one in members:
            now = current.status(item or job(), one, "j")  # type: ignore[arg-type]
        return now, current.decided(now)

    return asyncio.run(main())


def test_others_have_a_moment_to_fail_too(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Members(w0=None, w1=3)
    for seconds, decided in ((1000.0, False), (0.0, True)):
        monkeypatch.setattr(current_status, "_TOGETHER", seconds)
        now, may_end = looks(Members(w0=None, w1=None), failed)
        assert (now.state, now.decided_by, may_end) == (State.FAILED, ONE, decided)


def test_a_job_that_failed_without_a_replica_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at its deadline: all that can be shown is the end of its replicas."""
    monkeypatch.setattr(current_status, "_TOGETHER", 0.0)
    late = {"type": "Failed", "status": "True", "message": "longer than specified deadline"}
    item = job() | {"status": {"conditions": [late]}}
    now, may_end = looks(Members(w0=None, w1=None), item=item)
    assert (now.state, may_end) == (State.FAILED, False)


def test_a_part_that_holds_nodes_is_told_and_leaves_no_word_in_the_jobs_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partial_start, "_LONG", -1.0)
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
    part, failed = Members(w0=None, w1=None), Members(w0=3, w1=None)
    for one in (part, failed):
        waits = pod(None, "Pending", {"uid": "w1"}, conditions=[unscheduled])
        one.pods[ONE] = waits | {"status": waits["status"] | {"containerStatuses": []}}

    async def nothing(path: str, **query: str) -> Any:
        return {"items": []}

    async def main() -> None:
        server: Any = SimpleNamespace(clock=ServerClock(), get=nothing)
        current = CurrentStatus(server, JOB, 60.0, lambda: None)
        now = current.status(job(), part, "j")  # type: ignore[arg-type]
        assert (now.state, now.message) == (
            State.RUNNING,
            "1 of 2 replicas holds a node, worker-1 waits",
        )
        notice = current.notice()
        assert notice
        assert "no node takes worker-1: 0/1 nodes are available. With a queue" in notice.text
        assert current.notice() is None
        now = current.status(job(), failed, "j")  # type: ignore[arg-type]
        assert (now.state, now.message) == (State.FAILED, "")
        await current.close()

    asyncio.run(main())
