"""How far a training is, and how long it still takes, from the lines of its replicas alone.

Of the work only a share is known: steps of an epoch, epochs of the training. The time left is the
time of the work so far, in proportion. So it is right when later work is like earlier work, which a
validation after the first epoch is not.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from ciao_kernel.display.plot.log_line import Reading, read
from ciao_kernel.model import Job, Output, Replica
from ciao_kernel.model.progress import Done

_LINES = 8
"""Newest lines of an event that are read, besides those that open an epoch."""
_LONGEST = 400
_BACKLOG = 5.0
"""Seconds after the first line of an older job in which lines may be old: their times tell nothing.
"""
_YOUNG = 30.0
"""Age of a job whose lines have all been followed."""
_PAUSE = 0.25
"""Seconds between two readings of a replica, besides lines that begin or end an epoch."""
_READINGS = 3
"""Readings before a time is told."""
_SPARED = frozenset({"ps", "evaluator"})
"""Roles whose lines do not tell how far the training is."""
_EPOCH = re.compile(
    rb"epochs?[ \t:=\[(]{1,4}\d{1,9}[ \t]{0,2}/[ \t]{0,2}\d{1,9}[^\r\n]{0,300}", re.I
)
_OF_MANY = re.compile(rb"\d[ \t]{0,2}/[ \t]{0,2}\d")
_DIGITS = re.compile(r"\D{0,100}")
_OTHER = re.compile(r"\b(?:val|eval|test|sanity|predict)", re.I)
"""Begin of a word in front of a bar that is not the training's."""
_ENDS = re.compile(r"[\r\n]")


class ReplicaProgress:
    """Reads the lines of one replica.

    Args:
        backlog: Seconds in which lines may be old ones.
    """

    def __init__(self, backlog: float = 0.0) -> None:
        self._backlog = backlog
        self.read_at = -_PAUSE
        """When a line was read that is neither the begin nor the end of an epoch."""
        self._step: float | None = None
        self._steps: float | None = None
        self._epoch: float | None = None
        self._epochs: float | None = None
        self._longer = (0.0, 0.0, 0)
        """Total, last step and readings of a longer bar than the one that counts."""
        self._opened = False
        """The last line with an epoch only opened it."""
        self._from_zero = False
        """Epochs count from 0, and the last one is the total."""
        self._per_epoch = False
        """The bar begins again, and nothing tells how often: it does not tell the share."""
        self._first: float | None = None
        """When the first line came."""
        self._start: tuple[float, float] | None = None
        """Time and share from which the speed is measured."""
        self._last: tuple[float, float] = (0.0, 0.0)
        self._count = 0

    def add(self, line: str, now: float) -> None:
        """Read a line.

        Args:
            line: The line, or a part of it that a carriage return ends.
            now: When it came, in seconds.
        """
        if _OTHER.search(line[: _DIGITS.match(line).end()]):  # type: ignore[union-attr]
            return
        found = read(line[:_LONGEST])
        if found.epoch is not None and found.epochs and 0 < found.epochs >= found.epoch:
            if self._epoch is not None and found.epoch != self._epoch:
                self._step = None
            self._epoch, self._epochs = found.epoch, found.epochs
            self._opened = found.opens_epoch
            self._from_zero |= found.epoch == 0
        else:
            self._look_for_longer(found)
            if not (found.step is not None and found.total and self._counts(found)):
                return
        if found.step is not None and found.total and self._counts(found):
            if self._step is not None and found.step < self._step and not self._epochs:
                self._per_epoch = True
            self._per_epoch |= found.epoch is not None and not self._epochs
            self._step, self._steps = found.step, found.total
            if found.epoch is not None and not self._epochs:
                self._epoch = found.epoch
        self._note(now)

    def _look_for_longer(self, found: Reading) -> None:
        """Forget a bar of a preparation that was not finished, once a longer one goes on."""
        if found.of or not found.total or found.step is None:
            return
        total, step, count = self._longer
        if self._steps is None or found.total <= self._steps:
            self._longer = (0.0, 0.0, 0)
            return
        grown = found.total == total and found.step > step
        self._longer = (found.total, found.step, count + 1 if grown else 1)
        if self._longer[2] >= _READINGS:
            self._step = self._steps = self._start = None
            self._count = 0

    def _counts(self, found: Reading) -> bool:
        """Return whether a bar is the training's: not one of a validation in between."""
        if found.of or not found.total or (found.step or 0) > found.total:
            return False
        if self._steps is None or found.total == self._steps:
            return True
        return self._step is None or self._step >= self._steps

    @property
    def share(self) -> float | None:
        """Part of the work that is done; None if the lines do not tell."""
        inside = self._step / self._steps if self._step is not None and self._steps else None
        if self._epochs:
            # A line of an epoch with its values ends it; one without opens it, as a bar follows.
            ended = self._steps is None and not self._opened
            first = 0.0 if self._from_zero else 1.0
            before = (self._epoch or 0.0) - first + (1.0 if ended else 0.0)
            whole = self._epochs - first + 1.0
            return min(1.0, (max(0.0, before) + (inside or 0.0)) / whole)
        return inside

    def done(self, now: float) -> Done | None:
        """Return how far the replica is; None if its lines do not tell.

        Args:
            now: The time, in seconds.
        """
        share = self.share
        if share is None:
            return None
        left = None
        if self._start is not None and self._count >= _READINGS:
            began, before = self._start
            at, last = self._last
            if last > before and at > began:
                whole = (at - began) / (last - before) * (1 - last)
                left = max(0.0, whole - (now - at))
        step, steps, epoch, epochs = (
            None if one is None else int(one)
            for one in (self._step, self._steps, self._epoch, self._epochs)
        )
        return Done(share, left, step, steps, epoch, epochs, self._per_epoch and not self._epochs)

    def _note(self, now: float) -> None:
        share = self.share
        if share is None:
            self._start = None
            return
        if self._first is None:
            self._first = now
        # Before the first share there is the time of a compilation, for example.
        if (
            self._start is None
            or not self._start[1]
            or share < self._last[1]
            or self._start[0] - self._first < self._backlog
        ):
            self._start, self._count = (now, share), 0
        elif share > self._last[1]:
            self._count += 1
        self._last = (now, share)


class TrainingProgress:
    """Reads the lines of all replicas of a followed job.

    Args:
        job: The job.
        clock: Seconds, monotonic.
    """

    def __init__(self, job: Job, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        backlog = _BACKLOG if time.time() - job.created > _YOUNG else 0.0
        self._replicas: dict[Replica, ReplicaProgress] = {
            one: ReplicaProgress(backlog) for one in job.replicas if one.role not in _SPARED
        }

    def output(self, event: Output) -> None:
        """Read the newest lines of an event; the others would cost more than they tell."""
        known = self._replicas.get(event.replica)
        if known is None:
            return
        now = self._clock()
        lines = event.data.rsplit(b"\n", _LINES + 1)
        before = lines.pop(0) if len(lines) > _LINES else b""
        # A regular expression that ignores case is slow, and most lines open no epoch.
        opened = _EPOCH.finditer(before) if b"epoch" in before.lower() else ()
        for match in list(opened)[-1:]:
            known.add(match[0].decode("utf-8", "replace"), now)
        for line in (*lines, event.tail):
            is_epoch = _EPOCH.search(line) is not None
            if not _OF_MANY.search(line) or (now - known.read_at < _PAUSE and not is_epoch):
                continue
            for part in _ENDS.split(line[-4 * _LONGEST :].decode("utf-8", "replace"))[-2:]:
                if part.strip():
                    known.add(part, now)
        if now - known.read_at >= _PAUSE:
            known.read_at = now

    def done(self) -> Done | None:
        """Return how far the slowest replica is, of those whose lines tell it."""
        now = self._clock()
        known = [found for one in self._replicas.values() if (found := one.done(now))]
        return min(known, key=lambda one: one.share, default=None)


def of_logs(logs: Iterable[bytes], seconds: float) -> Done | None:
    """Return how far the slowest replica is by its log, whose lines have no times.

    Args:
        logs: The end of the output of each replica.
        seconds: Time in which the whole work so far was done, with the start of the job.
    """
    found = []
    for data in logs:
        one = ReplicaProgress()
        for part in _ENDS.split(data.decode("utf-8", "replace")):
            if part.strip():
                one.add(part, 0.0)
        if known := one.done(0.0):
            left = seconds * (1 - known.share) / known.share if known.share else None
            found.append(replace(known, left=left))
    return min(found, key=lambda one: one.share, default=None)
