"""Containers that keep a pod alive after its program: what is said, and how the job ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.states import sidecars, status
from ciao_kernel.model import Job, Replica, State, Status
from tests.unit.backends.kubernetes.states.test_foreseen import LEAVING, job, pod

PS, ZERO, ONE = Replica("ps", 0), Replica("worker", 0), Replica("worker", 1)
JOB = Job("mine", "kubernetes", "tensorflow", (PS, ZERO, ONE), 0.0, "team", uid="j")
PROXY = {"name": "istio-proxy", "state": {"running": {}}}


def with_proxy(code: int | None = None, **more: Any) -> Any:
    """A pod whose program runs or has ended, and whose other container runs."""
    made = pod(code, "Running", **more)
    made["status"]["containerStatuses"].insert(0, PROXY)
    return made


@pytest.mark.parametrize(
    ("item", "names"),
    [
        (with_proxy(0), ["istio-proxy"]),
        (pod(0), []),
        (pod(0, "Running"), []),
        (with_proxy(0, meta=LEAVING), []),
        # A native sidecar is an init container: it does not keep its pod.
        (pod(0, "Running", initContainerStatuses=[PROXY]), []),
    ],
)
def test_who_keeps_a_pod_alive(item: Any, names: list[str]) -> None:
    assert sidecars.keepers(item) == names


def status_of(pods: dict[Replica, Any], state: State = State.RUNNING) -> Status:
    return Status(state, tuple(status.of_pod(one, replica) for replica, one in pods.items()))


def test_a_container_that_does_not_end_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = {ZERO: with_proxy(0), ONE: with_proxy()}
    known = sidecars.KeptPods(JOB)
    # It may end a moment after the program.
    assert known.update(status_of(pods), pods) == frozenset()
    assert known.report(frozenset(), pods) is None
    monkeypatch.setattr(sidecars, "PATIENCE", 0.0)
    kept = known.update(status_of(pods), pods)
    assert kept == {ZERO}
    said = known.report(kept, pods)
    assert said is not None
    assert "worker-0 has ended, but its pod stays alive because its container istio-proxy" in said
    assert "leave out %labels=sidecar.istio.io/inject=true" in said
    assert "leave out %annotations=linkerd.io/inject=enabled" in said
    assert "native sidecar" in said
    assert known.report(kept, pods) is None
    pods[ZERO] = pod(0)
    assert known.update(status_of(pods), pods) == frozenset()


@pytest.mark.parametrize(
    ("codes", "kept", "policy", "end"),
    [
        # PS, worker-0, worker-1
        ((None, 0, 0), (ZERO, ONE), "", (State.SUCCEEDED, ZERO)),
        ((None, 0, None), (ZERO,), "", None),  # nobody would stop the other
        ((None, None, 0), (ONE,), "", None),
        ((None, None, 3), (ONE,), "", (State.FAILED, ONE)),
        ((None, 0, 3), (ZERO, ONE), "", (State.FAILED, ONE)),
        ((None, 0, 0), (), "", None),
        ((None, 0, 0), (ZERO, ONE), "AllWorkers", (State.SUCCEEDED, ZERO)),
    ],
)
def test_the_programs_decide_where_the_operator_sees_no_end(
    codes: tuple[int | None, ...],
    kept: tuple[Replica, ...],
    policy: str,
    end: tuple[State, Replica] | None,
) -> None:
    item = job(successPolicy=policy)
    item["metadata"]["annotations"][job_metadata._ENDLESS] = "ps"
    pods = {one: with_proxy(code) for one, code in zip((PS, ZERO, ONE), codes, strict=True)}
    now = status_of(pods)
    assert sidecars.outcome(item, now, kept, pods) == end
    over = status_of(pods, State.SUCCEEDED)
    assert sidecars.outcome(item, over, kept, pods) is None


def test_a_failure_after_the_decisive_success_fails_nothing() -> None:
    """As when rank 1 loses its connection because rank 0 has ended."""
    pods = {ZERO: with_proxy(0), ONE: with_proxy(1)}
    first, second = status_of(pods).replicas
    later = Status(State.RUNNING, (replace(first, since=100.0), replace(second, since=101.0)))
    assert sidecars.outcome(job(), later, [ZERO, ONE], pods) == (State.SUCCEEDED, ZERO)
    earlier = Status(State.RUNNING, (replace(first, since=101.0), replace(second, since=100.0)))
    assert sidecars.outcome(job(), earlier, [ZERO, ONE], pods) == (State.FAILED, ONE)
    pods[ZERO]["status"]["phase"] = "Succeeded"
    assert sidecars.outcome(job(), earlier, [ONE], pods) is None  # the operator has seen it


def test_who_may_be_started_again_is_left_to_the_operator() -> None:
    pods = {ZERO: with_proxy(137), ONE: with_proxy()}
    assert sidecars.outcome(job("ExitCode"), status_of(pods), [ZERO], pods) is None
    assert sidecars.outcome(job("ExitCode", decider=""), status_of(pods), [ZERO], pods) is None


def test_all_decide_where_no_single_replica_does() -> None:
    item = job(kind="jax", decider="all")
    pods = {ZERO: with_proxy(0), ONE: with_proxy()}
    assert sidecars.outcome(item, status_of(pods), [ZERO], pods) is None
    pods[ONE] = with_proxy(0)
    first, second = status_of(pods).replicas
    ended = Status(State.RUNNING, (replace(first, since=5.0), replace(second, since=6.0)))
    assert sidecars.outcome(item, ended, [ZERO, ONE], pods) == (State.SUCCEEDED, ONE)
    pods[ONE] = with_proxy(3)
    assert sidecars.outcome(item, status_of(pods), [ZERO, ONE], pods) == (State.FAILED, ONE)
