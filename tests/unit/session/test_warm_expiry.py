"""When warm replicas have ended by themselves, and what the next cell says of it."""

from __future__ import annotations

import pytest

from ciao_kernel.session.warm.expiry import Expiry


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_idle_replicas_end_after_the_time_of_their_last_run(clock: Clock) -> None:
    expiry = Expiry(300, clock)
    expiry.begin(60)
    clock.now = 1200
    expiry.rest()
    assert expiry.at == 1260
    assert expiry.why(over=False) == ", because no run began in them for 1m"


def test_a_kernel_that_slept_past_the_lease_does_not_renew_it(clock: Clock) -> None:
    expiry = Expiry(300, clock)
    expiry.begin(600)
    expiry.reach(1020, running=False)
    assert expiry.at == 1320
    expiry.reach(1400, running=False)
    assert expiry.at == 1320
    assert expiry.why(over=False) == ", because they heard nothing of this kernel for too long"


def test_replicas_do_not_end_while_a_run_is_active(clock: Clock) -> None:
    expiry = Expiry(300, clock)
    expiry.begin(600)
    clock.now = 1500
    expiry.reach(1500, running=True)
    expiry.rest()
    assert expiry.at == 1800


@pytest.mark.parametrize(
    ("marker", "why"),
    [
        ({"ev": "bye", "why": "idle"}, ", because no run began in them for 10m"),
        (
            {"ev": "end", "last": "the kernel is gone"},
            ", because they heard nothing of this kernel for too long",
        ),
        (
            {"ev": "bye", "why": "its input was closed"},
            ", because the connection to their input was lost",
        ),
        ({"ev": "bye", "why": "of a later release"}, ""),
    ],
)
def test_what_they_have_said_counts(clock: Clock, marker: dict[str, str], why: str) -> None:
    expiry = Expiry(300, clock)
    expiry.begin(600)
    expiry.hear({"ev": "end", "id": 1})
    assert expiry.at == 1300
    expiry.hear(marker)
    assert expiry.at == 0
    assert expiry.why(over=True) == why


def test_of_a_job_that_was_ended_by_others_no_reason_is_known(clock: Clock) -> None:
    expiry = Expiry(300, clock)
    expiry.begin(60)
    clock.now = 5000
    assert expiry.why(over=True) == ""
