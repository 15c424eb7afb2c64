"""A failure is foreseen only where the operator comes to no other result."""

from __future__ import annotations

from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.states import foreseen, status
from ciao_kernel.model import Replica, ReplicaStatus, State, Status

CHIEF, PS, ZERO, ONE = (Replica(*one) for one in (("chief", 0), ("ps", 0), ("worker", 0),
                                                  ("worker", 1)))  # fmt: skip
LEAVING = {"deletionTimestamp": "2026-11-21T11:00:00Z"}


def job(policy: str = "Never", *, kind: str = "tf", decider: str = "worker-0", **spec: Any) -> Any:
    """A job of two workers, one chief or master, and one PS."""
    roles = ("Chief", "Master", "Worker", "PS")
    specs = {role: {"restartPolicy": policy, "replicas": 1 + (role == "Worker")} for role in roles}
    notes = {job_metadata._DECIDER: decider}
    return {
        "metadata": {"name": "mine", "annotations": notes},
        "spec": {f"{kind}ReplicaSpecs": specs, **spec},
    }


def pod(
    code: int | None = None, phase: str = "", meta: dict[str, str] | None = None, **more: Any
) -> Any:
    """A pod of a program that runs, or has ended with this code."""
    how = {"running": {}} if code is None else {"terminated": {"exitCode": code}}
    phase = phase or ("Running" if code is None else "Failed" if code else "Succeeded")
    return {
        "metadata": {"name": "p", **(meta or {})},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "tensorflow"}]},
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": "tensorflow", "state": how}],
            **more,
        },
    }


def beside(made: Any, state: dict[str, Any]) -> Any:
    """The same pod, with another container in this state."""
    made["spec"]["containers"].append({"name": "proxy"})
    if state:
        made["status"]["containerStatuses"].append({"name": "proxy", "state": state})
    return made


def ruled(made: Any, **rules: Any) -> Any:
    """The same pod, whose container has a restart policy or rules of its own."""
    made["spec"]["containers"][0] |= rules
    return made


def counted(count: Any) -> Any:
    """A job whose number of workers is written so; None: it is left out."""
    made = job()
    worker = made["spec"]["tfReplicaSpecs"]["Worker"]
    if count is None:
        del worker["replicas"]
    else:
        worker["replicas"] = count
    return made


def seen(item: Any, pods: dict[Replica, Any]) -> Status | None:
    found = tuple(status.of_pod(one, replica) for replica, one in pods.items())
    return foreseen.failure(item, Status(State.RUNNING, found, 1.0), pods)


@pytest.mark.parametrize("disrupted", ["True", "False"])
def test_a_disrupted_pod_may_be_replaced(disrupted: str) -> None:
    """A Job with a podFailurePolicy replaces what a node has ended that shuts down."""
    lost = {"type": "DisruptionTarget", "status": disrupted, "reason": "TerminationByKubelet"}
    made = pod(137, conditions=[lost])
    one = status.of_pod(made, ZERO)
    indexed = {
        **job(),
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never"}}},
    }
    assert foreseen.failed_for_good(one, made, indexed) is (disrupted == "False")
    assert foreseen.failed_for_good(one, made, job())  # the operator replaces nothing


def test_a_pod_that_is_gone_may_be_created_again() -> None:
    one = status.of_pod(pod(3), ONE)
    assert foreseen.failed_for_good(one, pod(3), job())
    assert not foreseen.failed_for_good(one, None, job())


@pytest.mark.parametrize("kind", ["tf", "pytorch", "xgb", "paddle"])
@pytest.mark.parametrize("who", [CHIEF, PS, ZERO, ONE])
def test_any_replica_that_fails_for_good_fails_its_job(kind: str, who: Replica) -> None:
    pods = {one: pod() for one in (CHIEF, PS, ZERO, ONE)}
    assert seen(job(kind=kind), pods) is None
    now = seen(job(kind=kind), pods | {who: pod(3)})
    assert now is not None
    assert (now.state, now.decided_by, now.foreseen, now.decided) == (
        State.FAILED, who, True, False,
    )  # fmt: skip
    assert now.replicas[(CHIEF, PS, ZERO, ONE).index(who)].exit_code == 3


@pytest.mark.parametrize(
    ("policy", "code", "fails"),
    [
        ("Never", 1, True),
        ("Never", 137, True),
        ("ExitCode", 1, True),
        ("ExitCode", 127, True),
        ("ExitCode", 128, False),  # the operator starts the replica again from here on
        ("ExitCode", 137, False),
        ("ExitCode", 255, False),
        ("OnFailure", 1, False),
        ("Always", 1, False),
        ("", 1, False),
    ],
)
def test_who_is_started_again_has_not_failed(policy: str, code: int, fails: bool) -> None:
    now = seen(job(policy), {ZERO: pod(), ONE: pod(code)})
    assert (now is not None) == fails


def test_a_job_that_all_replicas_decide_fails_with_any_of_them() -> None:
    """Also after the success of another one, and only without restarts."""
    for kind in ("jax", "paddle"):
        for policy, fails in (("Never", True), ("ExitCode", False), ("OnFailure", False)):
            item = job(policy, kind=kind, decider="all")
            now = seen(item, {ZERO: pod(0), ONE: pod(3)})
            assert (now is not None) == fails
            if now:
                assert (now.state, now.decided_by) == (State.FAILED, ONE)
    assert seen(job(kind="jax", decider="all"), {ZERO: pod(0), ONE: pod()}) is None


@pytest.mark.parametrize(
    ("why", "item", "pods"),
    [
        ("the decider has succeeded", job(), {ZERO: pod(0)}),
        ("its container has, though its pod not yet", job(), {ZERO: pod(0, "Running")}),
        ("the decider is unknown", job(decider=""), {}),
        ("the decider is none of them", job(decider="chief-0"), {}),
        ("another container runs", job(), {ONE: beside(pod(3, "Running"), {"running": {}})}),
        ("another container is to start", job(), {ONE: beside(pod(3, "Running"), {})}),
        ("its container may start again", job(),
         {ONE: ruled(pod(3, "Running"), restartPolicy="OnFailure")}),
        ("its container starts again for some codes", job(),
         {ONE: ruled(pod(3, "Running"), restartPolicyRules=[{"action": "Restart"}])}),
        ("the pod is gone", job(), {ONE: None}),
        ("the pod is deleted, and made again", job(), {ONE: pod(3, meta=LEAVING)}),
        ("the pod was deleted while it ran", job(), {ONE: pod(143, meta=LEAVING)}),
        ("the job is deleted", job() | {"metadata": job()["metadata"] | LEAVING}, {}),
        ("it is an unknown kind", job(kind="mpi"), {}),
        ("it is suspended", job(runPolicy={"suspend": True}), {}),
        ("another cluster runs it", job(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}), {}),
        ("workers come and go", job(enableDynamicWorker=True), {}),
        ("its number of workers may change", job(kind="pytorch", elasticPolicy={}), {}),
        ("it is scaled down", job(), {Replica("worker", 2): pod()}),
        ("it is scaled down to one, the default", counted(None), {}),
        ("its number of workers cannot be read", counted("2"), {}),
    ],
)  # fmt: skip
def test_what_is_left_to_the_operator(why: str, item: Any, pods: dict[Replica, Any]) -> None:
    everyone = {ZERO: pod(), ONE: pod(3)}
    assert seen(job(), everyone) is not None
    found = {one: known for one, known in (everyone | pods).items() if known}
    replicas = tuple(status.of_pod(one, replica) for replica, one in found.items())
    gone = tuple(ReplicaStatus(one, State.FAILED) for one in pods if not pods[one])
    now = Status(State.RUNNING, (*replicas, *gone), 1.0)
    assert foreseen.failure(item, now, everyone | pods) is None


@pytest.mark.parametrize("word", ["Restarting", "Suspended"])
def test_conditions_with_which_a_failed_replica_fails_no_job(word: str) -> None:
    item = job() | {"status": {"conditions": [{"type": word, "status": "True"}]}}
    assert seen(item, {ZERO: pod(), ONE: pod(3)}) is None


def test_a_pod_that_never_ran_its_program_has_failed_too() -> None:
    """As one that was evicted: only with ExitCode the operator needs a code."""
    evicted = pod(phase="Failed", reason="Evicted")
    evicted["status"]["containerStatuses"] = []
    for policy, fails in (("Never", True), ("ExitCode", False)):
        assert (seen(job(policy), {ZERO: pod(), ONE: evicted}) is not None) == fails


def test_a_pod_that_will_fail_is_as_good_as_one_that_has() -> None:
    """The kubelet sets the phase about a second after the last container's end."""
    ended = {"terminated": {"exitCode": 0}}
    for one in (pod(3, "Running"), beside(pod(3, "Running"), ended)):
        now = seen(job(), {ZERO: pod(), ONE: one})
        assert now is not None
        assert now.decided_by == ONE


def test_a_replica_that_is_scaled_down_and_gone_hides_no_failure() -> None:
    pods = {ZERO: pod(), ONE: pod(3)}
    found = tuple(status.of_pod(one, replica) for replica, one in pods.items())
    gone = Replica("worker", 2)
    now = Status(State.RUNNING, (*found, ReplicaStatus(gone)), 1.0)
    foretold = foreseen.failure(job(), now, {**pods, gone: None})
    assert foretold is not None
    assert foretold.decided_by == ONE


def test_the_first_that_failed_decides() -> None:
    late, early = pod(3), pod(4)
    for one, second in ((late, 9), (early, 5)):
        how = one["status"]["containerStatuses"][0]["state"]["terminated"]
        how["finishedAt"] = f"2026-11-21T10:00:0{second}Z"
    now = seen(job(), {ZERO: late, ONE: early})
    assert now is not None
    assert (now.decided_by, now.since) == (ONE, status.stamp("2026-11-21T10:00:05Z"))


def test_a_status_that_is_over_stays() -> None:
    now = Status(State.SUCCEEDED, (ReplicaStatus(ZERO, State.FAILED),))
    assert foreseen.failure(job(), now, {ZERO: pod(3)}) is None
