"""Which replicas of a local job are started again, and when."""

from __future__ import annotations

import pytest

from ciao_kernel.backends.local.restarts import Restarts


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        ("Never", []),
        ("OnFailure", [-9, 1, 127, 128, 255]),
        ("ExitCode", [-9, 128, 255]),
        ("Always", [-9, 0, 1, 127, 128, 255]),
    ],
)
def test_the_policy_decides_by_the_exit_code(policy: str, wanted: list[int]) -> None:
    restarts = Restarts(policy, None)
    assert [code for code in (-9, 0, 1, 127, 128, 255) if restarts.wants(code)] == wanted
    assert restarts.possible is bool(wanted)


def test_a_record_of_an_earlier_release_restarts_nothing() -> None:
    assert not Restarts.of({}).possible
    asked = Restarts.of({"restart": "Always", "backoff_limit": 2})
    assert (asked.policy, asked.limit) == ("Always", 2)


@pytest.mark.parametrize(("limit", "made"), [(0, 0), (1, 0), (2, 1), (5, 4)])
def test_the_restart_that_reaches_the_limit_is_not_made(limit: int, made: int) -> None:
    restarts = Restarts("OnFailure", limit)
    for number in range(made):
        assert not restarts.is_used_up()
        restarts.add(f"worker-{number}", 0.0)  # all replicas count together
    assert restarts.is_used_up()


def test_without_a_limit_there_is_no_end() -> None:
    restarts = Restarts("OnFailure", None)
    for _ in range(1000):
        restarts.add("worker-0", 0.0)
    assert not restarts.is_used_up()


def test_the_first_restart_is_made_at_once_and_later_ones_after_growing_delays() -> None:
    restarts, now, delays = Restarts("OnFailure", None), 50.0, []
    for _ in range(9):
        restarts.started("worker-0", now)
        restarts.add("worker-0", now)
        assert restarts.next_at is not None
        delays.append(restarts.next_at - now)
        now = restarts.next_at
        assert restarts.take_due(now) == ["worker-0"]
        assert restarts.next_at is None
    assert delays == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    restarts.started("worker-0", now)
    restarts.add("worker-0", now + 600)
    assert restarts.next_at == now + 600


def test_replicas_wait_apart() -> None:
    restarts = Restarts("OnFailure", None)
    for _ in range(2):
        restarts.add("worker-1", 10.0)
    restarts.add("worker-0", 10.0)
    assert restarts.take_due(10.0) == ["worker-0"]
    assert restarts.take_due(10.5) == []
    assert restarts.next_at == 11.0
    restarts.drop()
    assert restarts.next_at is None
