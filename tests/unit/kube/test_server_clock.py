"""How far a server's clock is ahead, by the Date header of its answers."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from ciao_kernel.kube.server_clock import ServerClock

NOW = 1_800_000_000.25


@pytest.mark.parametrize("hours", [-1, 0, 1, 24 * 400])
def test_a_difference_is_known_after_one_answer_and_can_be_taken_back(hours: int) -> None:
    clock = ServerClock(lambda: NOW)
    clock.note(formatdate(NOW + hours * 3600, usegmt=True), NOW - 0.1)
    assert abs(clock.ahead - hours * 3600) <= 1
    assert clock.now() == NOW + clock.ahead
    created = 1_799_999_999.0
    assert clock.to_server(clock.to_local(created)) == created
    assert clock.to_local(0.0) == clock.to_server(0.0) == 0.0


def test_a_date_without_a_zone_is_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        clock = ServerClock(lambda: NOW)
        clock.note(time.asctime(time.gmtime(NOW)), NOW)
        assert clock.ahead == 0
    finally:
        monkeypatch.undo()
        time.tzset()


def test_an_answer_that_took_long_is_no_difference() -> None:
    """A proxy held it back, or it lay in a buffer while the machine slept."""
    clock = ServerClock(lambda: NOW)
    clock.note(formatdate(NOW - 55, usegmt=True), NOW - 60)
    assert clock.ahead == 0


def test_the_difference_stays_the_same_until_an_answer_contradicts_it() -> None:
    clock = ServerClock(lambda: NOW)
    clock.note(formatdate(NOW + 3600, usegmt=True), NOW)
    known = clock.ahead
    for second in (-3, 2, 4):
        clock.note(formatdate(NOW + 3600 + second, usegmt=True), NOW)
        assert clock.ahead == known
    clock.note(formatdate(NOW + 60, usegmt=True), NOW)
    assert 59 <= clock.ahead <= 61
    clock.note(formatdate(NOW + 3, usegmt=True), NOW)  # somebody set the clock
    assert clock.ahead == 0


@pytest.mark.parametrize("date", ["", "yesterday", "Mon, 99 Nov 2026 25:00:00 GMT", "\x00" * 9])
def test_a_header_that_is_no_date_tells_nothing(date: str) -> None:
    clock = ServerClock(lambda: NOW)
    clock.note(date, NOW)
    assert clock.ahead == 0
