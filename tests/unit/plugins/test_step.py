"""Reports of long steps: none of a short one, and few of any."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from ciao_kernel.model import Progress, Unit
from ciao_kernel.plugins import Step


@dataclass
class Loop:
    """A clock, and timers that run when it is moved."""

    now: float = 100.0
    timers: list[Timer] = field(default_factory=list)

    def later(self, seconds: float, call: Callable[[], None]) -> Any:
        timer = Timer(self.now + seconds, call)
        self.timers.append(timer)
        return timer

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while due := [one for one in self.timers if one.at <= until]:
            first = min(due, key=lambda one: one.at)
            self.timers.remove(first)
            self.now = first.at
            if not first.cancelled:
                first.call()
        self.now = until


@dataclass
class Timer:
    at: float
    call: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def told() -> list[Progress]:
    return []


def step(loop: Loop, told: list[Any], **more: Any) -> Step:
    return Step(told.append, "pushing", later=loop.later, clock=lambda: loop.now, **more)


def test_a_short_step_is_not_reported(loop: Loop, told: list[Progress]) -> None:
    with step(loop, told) as one:
        one.at(1, 2)
        loop.run(0.9)
    loop.run(60)
    assert told == []


def test_the_end_of_an_announced_step_is_reported_even_soon(
    loop: Loop, told: list[Progress]
) -> None:
    with step(loop, told, announced=True):
        loop.run(0.5)
    assert told == [Progress("pushing", 0.5, over=True)]
    with pytest.raises(ValueError, match="bad"), step(loop, told, announced=True):
        raise ValueError("bad")
    assert (told[-1].over, told[-1].failed) == (True, True)


def test_a_long_step_is_reported_until_its_end(loop: Loop, told: list[Progress]) -> None:
    with step(loop, told) as one:
        one.at(10, 100, detail="a layer")
        loop.run(1)
        one.at(60, 100)
        loop.run(1)
        one.at(100, 100)
    assert told == [
        Progress("pushing", 1.0, 10, 100, detail="a layer"),
        Progress("pushing", 1.5, 60, 100),
        Progress("pushing", 2.0, 100, 100, over=True),
    ]
    loop.run(60)
    assert len(told) == 3


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failed_step_says_so(
    loop: Loop, told: list[Progress], error: type[BaseException]
) -> None:
    def fails() -> None:
        with step(loop, told):
            loop.run(1)
            raise error

    with pytest.raises(error):
        fails()
    assert [(one.over, one.failed) for one in told] == [(False, False), (True, True)]


def test_many_amounts_make_few_reports(loop: Loop, told: list[Progress]) -> None:
    with step(loop, told) as one:
        for done in range(10_000):
            one.at(done, 10_000)
            loop.run(0.001)
    assert 15 <= len(told) <= 21  # of ten seconds


def test_the_time_alone_is_reported_ever_less_often(loop: Loop, told: list[Progress]) -> None:
    with step(loop, told):
        loop.run(60)
        early = len(told)
        loop.run(240)
    assert 55 <= early <= 60
    assert 20 <= len(told) - early <= 26


def test_a_step_of_amounts_alone_begins_with_its_first_one(
    loop: Loop, told: list[Progress]
) -> None:
    with step(loop, told, timed=False) as one:
        loop.run(30)
        one.at(1, 10)
        loop.run(0.9)
        assert told == []
        loop.run(1)
        assert told[0].seconds < 2
    with step(loop, told, timed=False):
        del told[:]
        loop.run(30)
    assert told == []


def test_an_error_of_the_display_does_not_end_the_reports(loop: Loop) -> None:
    told: list[Any] = []

    def emit(event: Any) -> None:
        told.append(event)
        if len(told) == 1:
            raise OSError("no socket")

    with Step(emit, "pushing", later=loop.later, clock=lambda: loop.now) as one:
        with pytest.raises(OSError, match="no socket"):
            loop.run(1)
        one.at(1, 2)
        loop.run(1)
    assert [event.done for event in told] == [0, 1, 1]


def test_another_thread_may_note_amounts(loop: Loop, told: list[Progress]) -> None:
    with step(loop, told) as one:
        thread = threading.Thread(target=one.at, args=(3, 7, Unit.PACKAGES))
        thread.start()
        thread.join()
        assert told == []
        loop.run(1)
    assert (told[0].done, told[0].total, told[0].unit) == (3, 7, Unit.PACKAGES)
