"""Progress of one replica, by its lines: a bar of steps, epochs, or both.

training_progress.py chooses the lines of a job that are read.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ciao_kernel.display.plot.bar_states import LONGEST, SkippedStates
from ciao_kernel.display.plot.log_line import Reading, read
from ciao_kernel.model.progress import Done

_READINGS = 3
"""Readings before a time is told."""
_NEARLY = 0.05
"""Part of a bar that may be missing at its end: not each of its states is read."""
_FALLS = 3
"""Falls of the step after which a bar is one of a loop: no training loses so much so often."""
_ENDED = 100
"""Maximum number of ended bars that are known by their totals."""
_VAIN = 100
"""Lines in a row without a new step after which no training is expected behind an ended bar."""
_DIGITS = re.compile(r"(?:\[\d{1,3}\] )?\D{0,100}")
"""Text before the first digit, behind the number of a process of the replica."""
_OTHER = re.compile(r"\b(?:val|eval|test|sanity|predict)", re.I)
"""Begin of a word in front of a bar that is not the training's."""


@dataclass
class _Bar:
    """A bar that tells the share, and the speed of the work by it."""

    step: float | None = None
    steps: float | None = None
    stride: float = 0.0
    """Steps between the last two readings."""
    falls: int = 0
    """How often the step fell to less than half: the end of a short bar is often not read."""
    of_loop: bool = False
    """The bar begins again, and nothing tells how often: it does not tell the share."""
    start: tuple[float, float] | None = None
    """Time and share from which the speed is measured."""
    last: tuple[float, float] = (0.0, 0.0)
    count: int = 0
    """Readings since the start."""

    @property
    def ended(self) -> bool:
        """Return whether all steps are done."""
        return self.step is not None and self.steps is not None and self.step >= self.steps


class ReplicaProgress:
    """Reads the lines of one replica.

    Args:
        backlog: Seconds in which lines may be old ones.
    """

    def __init__(self, backlog: float = 0.0) -> None:
        self._backlog = backlog
        self.read_at = -math.inf
        """When a line was read that is neither the begin nor the end of an epoch."""
        self.skipped = SkippedStates()
        """Of bars that were not read: one of them may be the last state of its bar."""
        self._bar = _Bar()
        self._epoch: float | None = None
        self._epochs: float | None = None
        self._longer = (0.0, 0.0, 0)
        """Total, last step and readings of a longer bar than the one that counts."""
        self._left: dict[float, _Bar] = {}
        """Bars that were left for a longer one, by total: they may go on."""
        self._unmeasured = (0.0, 0)
        """Last step and number of lines behind an ended bar whose steps have no total."""
        self._vain = 0
        """Lines in a row behind an ended bar that had no new step."""
        self.forgotten: set[float] = set()
        """Totals of bars that were a preparation's: the training behind them has no total."""
        self._outer: float | None = None
        """Total of a bar that went on behind a longer one: that was a part of it."""
        self._ended: set[float] = set()
        """Totals of bars that have ended: with one of them, a bar begins again."""
        self._opened = False
        """The last line with an epoch only opened it."""
        self._reopened = False
        """A line has opened this epoch behind its bar: the training begins again."""
        self._from_zero = False
        """Epochs count from 0, and the last one is the total unless their number is it."""
        self._counted = False
        self._first: float | None = None
        """When the first line came."""

    def add(self, line: str, now: float) -> None:
        """Read a line.

        Args:
            line: The line, or a part of it that a carriage return ends.
            now: When it came, in seconds.
        """
        if _OTHER.search(line[: _DIGITS.match(line).end()]):  # type: ignore[union-attr]
            return
        found = read(line[:LONGEST])
        self._forget_preparation(found)
        if found.epoch is not None and found.epochs and 0 < found.epochs >= found.epoch:
            self._enter(found)
        else:
            self._look_for_longer(found)
            if not self._counts(found):
                # Another bar is a part of the one that counts, and behind it one of a loop.
                if found.total and found.step == found.total and not found.of:
                    self._note_end(found.total)
                return
        if self._counts(found):
            self._move(found)
        self._note(now)

    def add_states(self, states: list[bytes], now: float) -> None:
        """Read states of bars, after the last ones of the bars that were not read."""
        for state in (*self.skipped.take(states), *states):
            self.add(state.decode("utf-8", "replace"), now)

    def add_later(self, lines: list[bytes], now: float) -> bool:
        """Read lines without a total, and return whether they had a new step of a training."""
        count = self._unmeasured[1]
        self.add_states(lines, now)
        told = not self._bar.ended or self._unmeasured[1] > count
        self._vain = 0 if told else self._vain + 1
        return told

    @property
    def may_have_ended(self) -> bool:
        """Return whether a bar may be over: then steps without a total tell something."""
        ended = self._bar.ended and self._vain < _VAIN
        return not self._epochs and (ended or bool(self.skipped))

    def _forget_preparation(self, found: Reading) -> None:
        """Forget an ended bar if the steps of a training without a total follow it."""
        last, count = self._unmeasured
        if self._epochs or not self._bar.ended:
            self._unmeasured, self._vain = (0.0, 0), 0
            return
        if found.of or found.total or found.step is None or found.step == last:
            return
        self._unmeasured = (found.step, count + 1 if found.step > last else 1)
        if self._unmeasured[1] >= _READINGS and self._bar.steps:
            self._note_end(self._bar.steps)
            self.forgotten |= {self._bar.steps} & self._ended
            self._bar, self._outer = _Bar(), None
            self._left.clear()

    def _enter(self, found: Reading) -> None:
        """Enter the epoch of a line."""
        if self._epoch is None:  # a bar before the first epoch is a preparation's
            self._bar = _Bar()
        elif found.epoch != self._epoch:
            self._bar.step = None
        if found.epoch != self._epoch:
            self._left.clear()
            self._reopened = False
        elif found.opens_epoch and self._bar.ended:
            self._reopened = True
        self._epoch, self._epochs = found.epoch, found.epochs
        self._opened = found.opens_epoch
        self._from_zero |= found.epoch == 0
        self._counted = found.epochs_counted

    def _look_for_longer(self, found: Reading) -> None:
        """Leave a bar for a longer one that goes on, and return to it if it goes on itself.

        The bar may be that of a preparation that was not finished. It may also be the training's,
        and the longer one that of an evaluation or of one epoch: then it goes on afterwards.
        """
        if found.of or not found.total or found.step is None or self._epoch_ended:
            return
        if (left := self._left.get(found.total)) and left.step is not None:
            if found.step > left.step:
                if self._bar.steps:
                    self._note_end(self._bar.steps)
                self._bar, self._outer = left, left.steps
                self._left.clear()
            elif found.step < left.step / 2:  # another bar that is as long
                del self._left[found.total]
        bar = self._bar
        total, step, count = self._longer
        if bar.steps is None or found.total <= bar.steps or bar.steps == self._outer:
            self._longer = (0.0, 0.0, 0)
            return
        if (found.total, found.step) == (total, step):  # the same line again
            return
        grown = found.total == total and found.step > step
        self._longer = (found.total, found.step, count + 1 if grown else 1)
        if self._longer[2] >= _READINGS:
            self._left[bar.steps] = bar
            self._bar = _Bar(of_loop=True)

    @property
    def _epoch_ended(self) -> bool:
        """Return whether the bar of this epoch has ended: another one is not the training's."""
        return bool(self._epochs) and self._bar.ended and not self._reopened

    def _counts(self, found: Reading) -> bool:
        """Return whether a bar is the training's: not one of a validation in between."""
        if found.of or not found.total or found.step is None or found.step > found.total:
            return False
        if self._bar.steps is None or found.total == self._bar.steps:
            return True
        if found.total in self._left or self._epoch_ended:
            return False
        return self._bar.step is None or self._bar.ended

    def _move(self, found: Reading) -> None:
        """Take over the step of a bar that counts."""
        bar, step, other = self._bar, found.step or 0.0, found.total != self._bar.steps
        if not self._epochs and bar.step is not None and bar.steps and found.total:
            begins = other or step <= bar.step / 2  # processes of a replica are nearly even
            if begins and bar.step + max(bar.stride, _NEARLY * bar.steps) >= bar.steps:
                self._note_end(bar.steps)
                bar.of_loop = found.total in self._ended or bool(self._left)
            bar.falls += begins and not other
            bar.of_loop |= bar.falls >= _FALLS
        elif not self._epochs:  # behind one that was forgotten
            bar.of_loop |= found.total in self._ended
        if found.epoch is not None and not self._epochs:
            self._epoch = found.epoch
        bar.of_loop |= self._epoch is not None and not self._epochs
        grown = not other and bar.step is not None and step > bar.step
        bar.stride = step - (bar.step or 0.0) if grown else 0.0
        bar.step, bar.steps = found.step, found.total
        self._reopened = False

    def _note_end(self, total: float) -> None:
        if len(self._ended) < _ENDED:
            self._ended.add(total)

    @property
    def share(self) -> float | None:
        """Part of the work that is done; None if the lines do not tell."""
        bar = self._bar
        inside = bar.step / bar.steps if bar.step is not None and bar.steps else None
        if self._epochs:
            # A line of an epoch with its values ends it; one without opens it, as a bar follows.
            ended = bar.steps is None and not self._opened
            first = 0.0 if self._from_zero else 1.0
            before = (self._epoch or 0.0) - first + (1.0 if ended else 0.0)
            whole = self._epochs - (1.0 if self._counted else first) + 1.0
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
        left, bar = None, self._bar
        if bar.start is not None and bar.count >= _READINGS:
            began, before = bar.start
            at, last = bar.last
            if last > before and at > began:
                whole = (at - began) / (last - before) * (1 - last)
                left = max(0.0, whole - (now - at))
        step, steps, epoch, epochs = (
            None if one is None else int(one)
            for one in (bar.step, bar.steps, self._epoch, self._epochs)
        )
        return Done(share, left, step, steps, epoch, epochs, bar.of_loop and not self._epochs)

    def _note(self, now: float) -> None:
        share, bar = self.share, self._bar
        if share is None:
            bar.start = None
            return
        if self._first is None:
            self._first = now
        # Before the first share there is the time of a compilation, for example.
        if (
            bar.start is None
            or not bar.start[1]
            or share < bar.last[1]
            or bar.start[0] - self._first < self._backlog
        ):
            bar.start, bar.count = (now, share), 0
        elif share > bar.last[1]:
            bar.count += 1
        bar.last = (now, share)
