"""When credentials that are refused again and again are given up."""

from __future__ import annotations

import pytest

from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube import refused_credentials as module
from ciao_kernel.kube.refused_credentials import RefusedCredentials

pytestmark = pytest.mark.stands_for("oldest")


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time; a test changes its only item."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_a_few_seconds_of_refusals_pass(at: list[float]) -> None:
    refusals = RefusedCredentials()
    for seconds in (0, 0.1, 1, 2, 3, 5.9):  # more tries than needed, but not for long enough
        at[0] = 100 + seconds
        assert not refusals.add()
    at[0] = 106
    assert refusals.add()


def test_one_slow_sign_in_is_not_the_last_try(at: list[float]) -> None:
    refusals = RefusedCredentials()
    assert [refusals.add() for at[0] in (100, 160, 220, 280)] == [False, False, False, True]


def test_an_accepted_request_forgets_refusals(at: list[float]) -> None:
    refusals = RefusedCredentials()
    for at[0] in (100, 103, 105):
        refusals.add()
    refusals.reset()
    assert [refusals.add() for at[0] in (200, 202, 204)] == [False] * 3
    at[0] = 206
    assert refusals.add()


def test_new_credentials_are_tried_at_once_and_then_slowly(at: list[float]) -> None:
    refusals = RefusedCredentials()
    refusals.add()
    assert not refusals.pause
    refusals.fault = ClusterFault("no such user")
    assert refusals.pause
    refusals.fault = None
    refusals.add()
    assert refusals.pause
    many = RefusedCredentials()
    for _ in range(1000):
        many.add()
    assert refusals.pause < many.pause <= 20
    refusals.reset()
    assert not refusals.pause
