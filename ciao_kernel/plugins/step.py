"""Reports how far a long step is, from any thread and without slowing it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

from ciao_kernel.model import Progress, Unit
from ciao_kernel.plugins.builder import Emit

_QUIET = 1.0
"""Seconds without a report: most steps end before."""
_TICK = 0.5
_SLOW_TICK = 10.0
"""Seconds between reports that change only the time, after the first minute."""

Later = Callable[[float, Callable[[], None]], asyncio.TimerHandle]
"""Calls a function after so many seconds."""


class Step:
    """A long step, used as a context manager on the event loop; its body must not block the loop.

    The step's own code only notes the newest amount, which costs nothing. A timer reports it: first
    after a second, then twice a second while the amount changes.

    Args:
        emit: Receives the events.
        name: What is done, for the begin of a line; no other step has it at the same time.
        timed: Report the time alone while no amount is known. Otherwise nothing is reported
            before the first amount, and the time begins with it.
        announced: A notice of it is shown: its end is reported even if it comes soon.
        later: Starts the timer; None: the running loop.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        emit: Emit,
        name: str,
        *,
        timed: bool = True,
        announced: bool = False,
        later: Later | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._emit, self._timed, self._announced = emit, timed, announced
        self._later, self._clock = later, clock
        self._name = name
        # A tuple is made quickly: for a layer that is sent, once for every 16 KiB.
        self._newest = (0, 0, Unit.BYTES, "")
        self._reported: Progress | None = None
        self._began: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def at(self, done: int, total: int, unit: Unit = Unit.BYTES, detail: str = "") -> None:
        """Note an amount; may be called very often, and from any thread.

        Args:
            done: The amount that is done.
            total: The whole amount; 0 if it is unknown.
            unit: What is counted.
            detail: What the step does at the moment.
        """
        if self._began is None:
            self._began = self._clock()
        self._newest = (done, total, unit, detail)

    def __enter__(self) -> Self:
        if self._timed:
            self._began = self._clock()
        self._later = self._later or asyncio.get_running_loop().call_later
        self._timer = self._later(_QUIET, self._tick)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._announced or self._reported is not None:
            self._emit(replace(self._now(), over=True, failed=kind is not None))

    def _now(self) -> Progress:
        began = self._clock() if self._began is None else self._began
        return Progress(self._name, self._clock() - began, *self._newest)

    def _tick(self) -> None:
        assert self._later is not None
        # First: an error of the display does not end the reports.
        self._timer = self._later(_TICK, self._tick)
        now, last = self._now(), self._reported
        if last is None:
            due = now.seconds >= _QUIET
        elif replace(now, seconds=last.seconds) != last:
            due = True
        else:
            pause = _QUIET if now.seconds < 60 else _SLOW_TICK
            due = now.seconds >= last.seconds + pause
        if due:
            self._reported = now
            self._emit(now)
