"""The pauses between two looks at local logs."""

from __future__ import annotations

import itertools

import pytest

from ciao_kernel.backends.local.polling import PollPauses


def looks(seconds: float, replicas: int = 2, *, begun: bool = False) -> list[float]:
    """Return when a follower looks that finds nothing for so long."""
    now = 0.0
    pauses = PollPauses(replicas, lambda: now)
    found = [now]
    if begun:
        now += pauses.after(found=True)
        found.append(now)
    while now < seconds:
        now += pauses.after(found=False)
        found.append(now)
    return found


def test_a_first_line_waits_for_a_twentieth_of_its_time() -> None:
    times = looks(0.9)
    for last, look in itertools.pairwise(times):
        assert 0.0009 < look - last < 0.0101
        assert look - last < max(0.0011, look / 20)
    assert times[-1] - times[-2] == pytest.approx(0.01)
    assert len(times) < 200


def test_a_later_line_waits_for_a_hundredth_of_its_time() -> None:
    times = looks(60.0, begun=True)
    for last, look in itertools.pairwise(times):
        assert 0.0099 < look - last < 0.0501
        assert look - last < max(0.0101, look / 100)
    assert times[-1] - times[-2] == pytest.approx(0.05)


def test_a_flood_is_read_from_time_to_time() -> None:
    pauses = PollPauses(2, lambda: 0.0)
    assert [pauses.after(found=True) for _ in range(6)] == [0.01] * 3 + [0.05] * 3
    assert pauses.after(found=False) == 0.01


def test_a_line_now_and_then_is_no_flood() -> None:
    pauses = PollPauses(2, lambda: 0.0)
    assert {pauses.after(found=look % 4 != 0) for look in range(1, 100)} == {0.01}


@pytest.mark.parametrize(("replicas", "pause"), [(1, 0.01), (16, 0.01), (64, 0.04), (1000, 0.05)])
def test_the_looks_at_many_logs_cost_little(replicas: int, pause: float) -> None:
    times = looks(0.5, replicas, begun=True)
    assert times[3] - times[2] == pytest.approx(pause)
