"""One curve of a replica: its points, and their positions on the axis.

metrics.py fills curves with the numbers that log_line.py finds.
"""

from __future__ import annotations

import copy
import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable

from ciao_kernel.display.plot.log_line import Reading

MAX_POINTS = 500
"""Maximum number of points of a curve; a picture has no columns for more."""
_RAW = 16
"""Maximum number of points in the newest column before it is thinned."""


class Series:
    """Points of one curve, at most :data:`MAX_POINTS`, from left to right.

    If there are more, the axis is divided into columns. Each column keeps its lowest point, its
    highest point and one that is not finite: a curve is as detailed at its start as at its end.

    A point to the left of the last one means that the training went back, to a checkpoint or to
    its start: new points replace the old points. The same applies to a repeated line.
    """

    def __init__(self, limit: int = MAX_POINTS) -> None:
        self.x: list[float] = []
        self.y: list[float] = []
        self.axis = ""
        """Unit that ``x`` counts: ``step``, ``epoch`` or ``line``."""
        self.name = ""
        """Name of the metric in log lines, as metrics.py found it."""
        self._limit = max(16, limit)
        self._width = 0.0
        """Width of a column; 0 while every point is kept."""
        self._column: float | None = None
        """Column of the last point; ``_open`` is the index of its first point."""
        self._open = 0

    def add(self, x: float, y: float) -> None:
        """Add a point; ``y`` may be NaN or infinite."""
        if self.x and x <= self.x[-1]:
            self.forget(x)
        if self._width:
            column = x // self._width
            if column != self._column:
                self._close()
                self._column, self._open = column, len(self.x)
            elif len(self.x) - self._open > _RAW:
                self._close()
        self.x.append(x)
        self.y.append(y)
        if len(self.x) > self._limit:
            self._thin()

    def forget(self, x: float) -> None:
        """Drop the points from a position on."""
        cut = bisect_left(self.x, x)
        del self.x[cut:], self.y[cut:]
        self._column, self._open = None, cut
        if not cut:
            self._width = 0.0
        elif self._width:  # the column of the cut continues
            width = self._width
            self._column = self.x[-1] // width
            self._open = bisect_left(self.x, self._column, key=lambda at: at // width)

    def copy(self, limit: int = 0) -> Series:
        """Return a curve with the same points, or with fewer points if the limit is lower."""
        twin = copy.copy(self)
        twin.x, twin.y = self.x[:], self.y[:]
        if limit and len(self.x) > limit:
            twin._limit = max(16, limit)
            twin._thin()
        return twin

    def _close(self) -> None:
        """Thin the newest column; the first point of the curve stays."""
        begin = max(1, self._open)
        if len(self.x) - begin > 3:
            kept = self._best(range(begin, len(self.x)))
            self.x[begin:] = [self.x[place] for place in kept]
            self.y[begin:] = [self.y[place] for place in kept]

    def _thin(self) -> None:
        """Widen the columns until at least a quarter of the points is gone."""
        last = len(self.x) - 1
        self._width = 2 * self._width or (self.x[-1] - self.x[0]) * 3 / self._limit
        while True:
            columns = itertools.groupby(range(1, last), lambda at: self.x[at] // self._width)
            kept = [place for _, places in columns for place in self._best(places)]
            if len(kept) + 2 <= self._limit * 3 // 4:
                break
            self._width *= 2
        self.x = [self.x[place] for place in (0, *kept, last)]
        self.y = [self.y[place] for place in (0, *kept, last)]
        self._column, self._open = None, len(self.x)

    def _best(self, places: Iterable[int]) -> list[int]:
        """Return the lowest, the highest and one non-finite of some points."""
        several = list(places)
        finite = [place for place in several if math.isfinite(self.y[place])]
        kept = set(itertools.islice((one for one in several if not math.isfinite(self.y[one])), 1))
        if finite:
            kept |= {min(finite, key=self.y.__getitem__), max(finite, key=self.y.__getitem__)}
        return sorted(kept)


class StepAxis:
    """Progress of one replica: maps the steps and epochs of its lines to one growing axis.

    Many programs restart their step counter in each epoch, and so does a progress bar of tqdm. The
    steps of the axis are the training's. A validation loop with its own step counter is drawn at
    the training's current step.

    Args:
        named: The lines name their data set. If not, a second loop in an epoch may use any data,
            such as Keras' evaluation at the end.
    """

    _MOST_EPOCHS = 10_000

    def __init__(self, *, named: bool = False) -> None:
        self._named = named
        self._epoch: float | None = None
        self._opened = False
        """True if a line opened the epoch since the last step."""
        self._starts: dict[int, float] = {}
        """Positions on the axis at which each epoch's steps begin."""
        self._at: int | None = None
        """Epoch of the last step."""
        self._start = 0.0
        self._step = 0.0
        self._most = 0.0
        """Greatest step of this epoch."""
        self._total: float | None = None
        self._place: float | None = None
        self._over = False
        """True while a loop runs that is not the epoch's first."""
        self._apart = False
        """True while a loop over other data runs that counts its own steps."""
        self._others: dict[str, StepAxis] = {}
        """Progress of loops over other data, if no training step was seen."""

    def note(self, reading: Reading) -> None:
        """Note the epoch of a line."""
        if reading.epoch is not None:
            self._epoch = reading.epoch
            self._opened |= reading.opens_epoch

    def place(self, reading: Reading) -> tuple[str, float] | None:
        """Return the unit and the position of a line's values; ``line`` has no position.

        None for a loop that is not the training and does not name its data set.
        """
        self.note(reading)
        of, step = reading.of, reading.step
        if of and self._place is None and (step is not None or of in self._others):
            other = self._others.setdefault(of, StepAxis(named=True))
            other._epoch, other._opened, self._opened = self._epoch, self._opened, False
            return other._go(reading)
        if of and step is not None and self._place is not None:
            return "step", self._beside(step, reading.total, self._place)
        return self._go(reading)

    def copy(self) -> StepAxis:
        """Return a copy at the same position."""
        twin = copy.copy(self)
        twin._starts = self._starts.copy()
        twin._others = {of: other.copy() for of, other in self._others.items()}
        return twin

    def _go(self, reading: Reading) -> tuple[str, float] | None:
        if reading.step is not None:
            self._enter(reading.step, reading.total)
            if self._over:
                return None
            self._step, self._most = reading.step, max(self._most, reading.step)
            self._total = reading.total or self._total
            self._place = self._start + reading.step
            self._apart = False
        if self._place is not None:
            return "step", self._place
        return ("line", 0.0) if self._epoch is None else ("epoch", self._epoch)

    def _beside(self, step: float, total: float | None, place: float) -> float:
        """Return the position of a step over other data, which may share the training's counter."""
        if step < self._step or (total and self._total and total != self._total):
            self._apart = True
        return place if self._apart else self._start + step

    def _enter(self, step: float, total: float | None) -> None:
        """Find the epoch of a step, and the position at which the epoch begins."""
        epoch, opened = 0 if self._epoch is None else int(self._epoch), self._opened
        another = bool(total and self._total and total != self._total)
        ended = step < self._step and self._step == self._total
        done, self._opened = max(self._most, self._total or 0.0), False
        if epoch == self._at and not opened:
            if not another and not ended:
                self._over &= total is not None and step <= self._step
            elif self._named or self._epoch is None:
                self._begin(epoch, self._start + done)
            else:
                self._over = True
        elif epoch in self._starts:  # went back
            self._starts = {one: at for one, at in self._starts.items() if one <= epoch}
            self._begin(epoch, self._starts[epoch])
        else:
            if not self._total and self._at is not None and step <= 0:
                done += 1  # steps count from 0: the last position is taken
            if self._starts and epoch < next(iter(self._starts)):
                self._starts.clear()  # restarted, at an epoch before the first one seen
                self._start = done = 0.0
            self._begin(epoch, self._start + (done if step <= self._most else 0.0))

    def _begin(self, epoch: int, start: float) -> None:
        self._starts[epoch] = self._start = start
        if len(self._starts) > self._MOST_EPOCHS:
            del self._starts[next(iter(self._starts))]
        self._at, self._over = epoch, False
        self._step = self._most = 0.0
        self._total = None
