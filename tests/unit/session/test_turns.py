"""Restarts of replicas, and their stop by the job's success, as lines of a cell."""

from __future__ import annotations

from typing import Any

import pytest

from ciao_kernel.model import Job, Replica, ReplicaStatus, State, Status
from ciao_kernel.session.turns import Restarts, stopped_by_success

CHIEF, ONE, TWO, PS = (
    Replica(*one) for one in (("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0))
)
HERE = Job("mine", "local", "tensorflow", (ONE, TWO), 1.0)
THERE = Job("mine", "kubernetes", "tensorflow", (ONE, TWO), 1.0, kind_of_place="namespace")


def one(state: State = State.RUNNING, replica: Replica = ONE, **more: Any) -> Status:
    return Status(State.RUNNING, (ReplicaStatus(replica, state, **more),))


def said(*statuses: Status) -> list[str]:
    restarts = Restarts()
    return [text for status in statuses for text in restarts.sentences(status)]


def test_a_restart_in_the_same_pod_is_said_once_with_its_exit_code() -> None:
    again = one(restarts=1, last_exit=1)
    assert said(one(), again, again, one(restarts=2, last_exit=-9)) == [
        "worker-0 was restarted (exit code 1), try 2",
        "worker-0 was restarted (SIGKILL), try 3",
    ]


def test_a_pod_in_place_of_another_goes_on_with_the_count() -> None:
    assert said(
        one(restarts=1, last_exit=3),
        one(State.FAILED, restarts=1, exit_code=137),
        one(State.PENDING, restarts=2),
        one(restarts=2),
        one(State.STOPPED, restarts=2, reason="evicted\x1b"),
        one(restarts=3),
    ) == [
        "worker-0 was restarted (exit code 3), try 2",
        "worker-0 was restarted (exit code 137), try 3",
        "worker-0 was restarted (evicted\\x1b), try 4",
    ]


def test_an_end_and_a_start_are_no_restart() -> None:
    assert said(one(State.PENDING), one(), one(State.SUCCEEDED), one(State.FAILED)) == []
    assert said(one(restarts=1)) == ["worker-0 was restarted, try 2"]  # known to who attaches


def ended(
    by: Replica | None, *states: tuple[Replica, State], state: State = State.SUCCEEDED
) -> Status:
    return Status(state, tuple(ReplicaStatus(*pair) for pair in states), decided_by=by)


@pytest.mark.parametrize(
    ("job", "by", "remedy"),
    [
        (THERE, ONE, "%successPolicy=allWorkers waits for all"),
        (THERE, CHIEF, "the setting linger gives others more time"),
        (HERE, ONE, "the setting linger gives others more time"),
    ],
)
def test_replicas_that_success_has_stopped_are_named(job: Job, by: Replica, remedy: str) -> None:
    status = ended(by, (by, State.SUCCEEDED), (TWO, State.STOPPED), (PS, State.STOPPED))
    assert stopped_by_success(job, status, {"ps"}) == (
        f"Succeeded with {by}; worker-1 was still at work and was stopped ({remedy})."
    )


def test_several_stopped_replicas_are_one_sentence() -> None:
    others = [(Replica("worker", number), State.STOPPED) for number in range(1, 12)]
    status = ended(ONE, (ONE, State.SUCCEEDED), *others)
    assert "worker-8 and 3 more were still at work and were stopped" in stopped_by_success(
        THERE, status, ()
    )


def test_another_end_stops_nobody_by_success() -> None:
    done = (TWO, State.SUCCEEDED)
    assert stopped_by_success(HERE, ended(ONE, (ONE, State.SUCCEEDED), done), ()) == ""
    stopped = (TWO, State.STOPPED)
    assert stopped_by_success(HERE, ended(None, stopped), ()) == ""
    for state in (State.FAILED, State.STOPPED):
        assert stopped_by_success(HERE, ended(ONE, stopped, state=state), ()) == ""
