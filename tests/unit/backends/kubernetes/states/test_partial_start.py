"""A job of which a part holds nodes while no node takes the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.states.partial_start import PartialStart
from ciao_kernel.model import Replica, ReplicaStatus, State, Status

ROOM = (
    "unschedulable: 0/4 nodes are available: 1 Insufficient nvidia.com/gpu, 3 Insufficient "
    "memory. preemption: 0/4 nodes are available: 4 No preemption victims found."
)
SAID = "0/4 nodes are available: 1 Insufficient nvidia.com/gpu, 3 Insufficient memory"
QUEUE = " With a queue (%queue) a job starts as a whole, or waits without holding anything."
PLAIN: Any = {"metadata": {"name": "mnist"}}
QUEUED: Any = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team"}}}
RUNS, WAITS, ENDED = (State.RUNNING, "", "n1"), (State.PENDING, ROOM, ""), (State.SUCCEEDED, "", "")
PULLS = (State.PENDING, "", "n1")


def status(*workers: tuple[State, str, str], state: State = State.RUNNING) -> Status:
    replicas = [
        ReplicaStatus(Replica("worker", number), one, reason=reason, node=node)
        for number, (one, reason, node) in enumerate(workers)
    ]
    return Status(state, tuple(replicas))


class Looks:
    """Looks at a job, some seconds apart."""

    def __init__(self) -> None:
        self.time = 0.0
        self.start = PartialStart(lambda: self.time)

    def after(self, seconds: float, now: Status, item: Any = PLAIN) -> tuple[str, str | None]:
        self.time += seconds
        return self.start.look(now, item).message, self.start.notice()


def test_after_a_minute_one_sentence_says_it_and_the_state_as_long_as_it_lasts() -> None:
    looks, part = Looks(), status(RUNS, RUNS, WAITS)
    assert looks.after(0, part) == ("", None)
    assert looks.after(59, part) == ("", None)
    message, notice = looks.after(1, part)
    assert message == "2 of 3 replicas hold nodes, worker-2 waits"
    assert notice == f"2 of 3 replicas hold nodes, and no node takes worker-2: {SAID}.{QUEUE}"
    assert looks.after(60, part) == (message, None)
    assert looks.after(1, status(RUNS, RUNS, RUNS)) == ("", None)


def test_a_wait_that_ends_counts_from_its_new_begin() -> None:
    looks, part = Looks(), status(RUNS, WAITS)
    looks.after(0, part)
    looks.after(50, status(RUNS, RUNS))
    assert looks.after(50, part) == ("", None)
    assert looks.after(60, part)[1]


def test_a_job_that_somebody_holds_back_says_that_and_its_wait_counts_anew() -> None:
    looks, part = Looks(), status(RUNS, WAITS)
    looks.after(0, part)
    back = replace(part, state=State.PENDING, reason="Suspended", message="someone suspended it")
    assert looks.after(70, back) == ("someone suspended it", None)
    assert looks.after(1, part) == ("", None)
    assert looks.after(59, part) == ("", None)
    assert looks.after(1, part)[1]


def test_a_replica_whose_image_is_pulled_holds_its_node() -> None:
    looks, part = Looks(), status(PULLS, WAITS, WAITS, state=State.PENDING)
    looks.after(0, part)
    message, notice = looks.after(60, part)
    assert message == "1 of 3 replicas holds a node, worker-1 and worker-2 wait"
    assert notice
    assert "no node takes worker-1 and worker-2: 0/4" in notice


def test_many_are_counted_and_a_job_in_a_queue_is_not_told_of_queues() -> None:
    looks, part = Looks(), status(RUNS, *[WAITS] * 9)
    looks.after(0, part, QUEUED)
    _, notice = looks.after(60, part, QUEUED)
    assert notice == f"1 of 10 replicas holds a node, and no node takes 9 others: {SAID}."


def test_a_scheduler_without_words() -> None:
    looks, part = Looks(), status(RUNS, (State.PENDING, "unschedulable", ""))
    looks.after(0, part)
    assert looks.after(60, part)[1] == (
        f"1 of 2 replicas holds a node, and no node takes worker-1.{QUEUE}"
    )


@pytest.mark.parametrize(
    "now",
    [
        status(RUNS, RUNS),
        status(WAITS, WAITS, state=State.PENDING),
        status(ENDED, WAITS),
        status(RUNS, PULLS),
        status(RUNS, (State.PENDING, "ErrImagePull: x", "n1")),
        status(RUNS, WAITS, state=State.FAILED),
    ],
    ids=["all run", "none holds", "ended", "pulls", "no image", "over"],
)
def test_what_is_no_part_of_a_job_is_not_told(now: Status) -> None:
    looks = Looks()
    for _ in range(3):
        assert looks.after(100, now) == ("", None)
