"""Which ends of pods are losses, and which are the program's own."""

from __future__ import annotations

from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.following.losses import Losses
from ciao_kernel.model import Replica, ReplicaStatus, State, Status

WORKER = "training.kubeflow.org/replica-type"
FAILED = Status(State.FAILED, (), message="TFJob j has failed because 1 Worker replica(s) failed.")


def at(second: int) -> str:
    return f"2026-01-01T00:{second // 60:02d}:{second % 60:02d}Z"


def pod(
    index: int = 0,
    *,
    deleted: int | None = None,
    code: int | None = None,
    ended: int = 0,
    why: str = "",
    disrupted: int | None = None,
    phase: str = "Running",
    uid: str = "",
    **more: Any,
) -> dict[str, Any]:
    """A pod in its last state; times are seconds."""
    meta: dict[str, Any] = {
        "name": f"j-worker-{index}",
        "uid": uid or f"uid-{index}",
        "creationTimestamp": at(int(more.pop("made", 0))),
        "labels": {WORKER: "worker", "training.kubeflow.org/replica-index": str(index)},
    }
    if deleted is not None:
        # The server's stamp is the time at which the grace is over.
        meta |= {"deletionTimestamp": at(deleted + 30), "deletionGracePeriodSeconds": 30}
    state: dict[str, Any] = {"running": {}}
    if code is not None:
        over = {"exitCode": code, "finishedAt": at(ended), **({"reason": why} if why else {})}
        state = {"terminated": over}
    conditions = []
    if disrupted is not None:
        conditions = [
            {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "EvictionByEvictionAPI",
                "lastTransitionTime": at(disrupted),
            }
        ]
    status = {"phase": phase, "containerStatuses": [{"state": state}], "conditions": conditions}
    return {"metadata": meta, "spec": {"containers": [{}]}, "status": status | more}


def excuse(*looks: list[dict[str, Any]], now: Status = FAILED) -> str:
    losses = Losses()
    for pods in looks:
        losses.look(pods)
    return losses.excuse(now)


def waited(code: int, ended: int = 200, name: str = "init-pytorch") -> dict[str, Any]:
    """A worker whose init container has failed."""
    over = {"terminated": {"exitCode": code, "finishedAt": at(ended)}}
    main = {"state": {"waiting": {"reason": "PodInitializing"}}}
    before = [{"name": name, "state": over}]
    return pod(phase="Failed", containerStatuses=[main], initContainerStatuses=before)


EVICTED = "worker-0 was evicted, as when its node is drained"


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        pytest.param([[pod(deleted=5)]], "worker-0 was deleted", id="deleted while it runs"),
        pytest.param([[pod(deleted=5, disrupted=5)]], EVICTED, id="evicted"),
        pytest.param(
            [[pod(deleted=5, code=1, ended=7)]], "worker-0 was deleted", id="it saved and ended"
        ),
        pytest.param([[pod(code=1, ended=5)]], "", id="a failure"),
        pytest.param([[pod(code=143, ended=5)]], "", id="an exit code as of a signal"),
        pytest.param([[pod(code=1, ended=5, deleted=6)]], "", id="deleted after its failure"),
        pytest.param(
            [[pod(code=137, ended=5, why="OOMKilled", deleted=4)]], "", id="out of memory"
        ),
        pytest.param(
            [[pod(code=137, ended=5, why="ContainerStatusUnknown")]],
            "worker-0 was lost with the container runtime of its node",
            id="its node was restarted",
        ),
        pytest.param(
            [[pod(code=137, ended=5, phase="Failed", reason="Evicted", message="low on memory")]],
            "worker-0 was ended by its node (Evicted)",
            id="evicted by its node",
        ),
        pytest.param(
            [
                [
                    pod(
                        code=137,
                        ended=5,
                        phase="Failed",
                        reason="Evicted",
                        message="Usage of EmptyDir volume exceeds the limit 1Gi.",
                    )
                ]
            ],
            "",
            id="it used more disk than its limit",
        ),
        pytest.param(
            [[pod(0, deleted=5)], [pod(1, code=1, ended=6)]],
            "worker-0 was deleted",
            id="another one fails for want of it",
        ),
        pytest.param(
            [[pod(1, code=1, ended=5)], [pod(0, deleted=5)]], "", id="its failure came first"
        ),
        pytest.param(
            [[pod(1, code=1, ended=5), pod(0, deleted=5)]],
            "",
            id="in one look and one second the controller may have deleted it",
        ),
        pytest.param(
            [[pod(1, code=1, ended=5), pod(0, deleted=5, disrupted=5)]],
            EVICTED,
            id="but an eviction is none of its acts",
        ),
        pytest.param(
            [[pod(0, deleted=5)], [pod(1, code=1, ended=200)]], "", id="long after the loss"
        ),
        pytest.param(
            [[pod(0, deleted=5, disrupted=5)], [pod(1, code=1, ended=605)]],
            "",
            id="long after an eviction without another pod",
        ),
        pytest.param(
            [
                [pod(0, deleted=5, disrupted=5)],
                [pod(0, uid="again", made=6)],
                [pod(1, code=1, ended=605)],
            ],
            EVICTED,
            id="another one has waited for the pod that could not take its place",
        ),
        pytest.param(
            [
                [pod(0, deleted=5, disrupted=5)],
                [pod(0, uid="again", made=6)],
                [pod(1, code=1, ended=1815)],
            ],
            EVICTED,
            id="and as long as gloo does",
        ),
        pytest.param(
            [
                [pod(0, deleted=5, disrupted=5)],
                [pod(0, uid="again", made=6)],
                [pod(1, code=1, ended=3000)],
            ],
            "",
            id="longer than any of them waits",
        ),
        pytest.param(
            [
                [pod(0, deleted=5, disrupted=5)],
                [pod(0, uid="again", made=6, code=1, ended=605)],
            ],
            "",
            id="the pod that took its place has failed long after",
        ),
        pytest.param(
            [
                [pod(0, deleted=5)],
                [pod(0, uid="again", made=6)],
                [pod(1, code=1, ended=605)],
            ],
            "",
            id="long after somebody has deleted a pod that was replaced",
        ),
        pytest.param(
            [
                [pod(1, code=137, ended=5)],
                [pod(1, uid="again", made=6)],
                [pod(0, deleted=9)],
            ],
            "worker-0 was deleted",
            id="an earlier failure that was restarted",
        ),
        *(
            pytest.param(
                [[pod(phase="Failed", reason=reason, containerStatuses=[])]],
                f"worker-0 was rejected by its node ({reason})",
                id=f"no program ran: {reason}",
            )
            for reason in ("UnexpectedAdmissionError", "OutOfcpu", "OutOfnvidia.com/gpu")
        ),
        pytest.param(
            [
                [pod(0, phase="Failed", reason="OutOfcpu", containerStatuses=[], made=30)],
                [pod(1, code=1, ended=50)],
            ],
            "worker-0 was rejected by its node (OutOfcpu)",
            id="another one fails for want of a rejected one",
        ),
        pytest.param(
            [[waited(1)]],
            "worker-0 was not started: the master was not ready in time",
            id="the operator let it wait too long",
        ),
        pytest.param([[waited(137)]], "", id="its wait was ended"),
        pytest.param([[waited(1, name="mine")]], "", id="another init container has failed"),
        pytest.param(
            [[waited(1, ended=300), pod(1, code=1, ended=200)]],
            "",
            id="another one has failed while it waited",
        ),
        pytest.param(
            [[pod(code=1, ended=5, phase="Failed", reason="OutOfcpu")]],
            "",
            id="its program has failed by itself",
        ),
        pytest.param([[]], "a replica was lost", id="nobody saw it, and no pod has failed"),
    ],
)
def test_the_cause_of_a_failed_job(looks: list[list[dict[str, Any]]], expected: str) -> None:
    assert excuse(*looks) == expected


@pytest.mark.parametrize(
    "now",
    [
        Status(State.RUNNING, ()),
        Status(State.STOPPED, ()),
        Status(State.FAILED, (), message="the job ran longer than its %deadline."),
        Status(State.FAILED, (), hopeless=True),
    ],
)
def test_a_job_that_failed_otherwise_is_not_excused(now: Status) -> None:
    assert excuse([pod(deleted=5)], now=now) == ""


def test_a_replica_that_has_failed_is_no_loss_that_nobody_saw() -> None:
    failed = ReplicaStatus(Replica("worker", 0), State.FAILED)
    assert excuse([], now=Status(State.FAILED, (failed,), message=FAILED.message)) == ""


def test_a_suspension_is_no_loss() -> None:
    """The pods that it ends are seen before, with, and after the job that shows it."""
    losses = Losses()
    losses.look([pod(0), pod(1), pod(2)])
    losses.look([pod(0, deleted=10)])
    losses.look([pod(1, deleted=10)], suspended=True)
    losses.look([pod(2, deleted=10)])
    losses.look([pod(0, code=1, ended=20, uid="new", made=15)])
    assert losses.excuse(FAILED) == ""


def test_a_loss_after_a_suspension_is_one() -> None:
    losses = Losses()
    losses.look([pod(0)])
    losses.look([pod(0, deleted=10)], suspended=True)
    losses.look([pod(0, deleted=30, uid="new", made=15)])
    assert losses.excuse(FAILED) == "worker-0 was deleted"
