"""Numbers in the lines that replicas write: ``step 20 loss 0.31`` becomes a point of a curve.

:func:`ciao_kernel.readings.read` reads a line. Nothing here knows how curves are drawn.
"""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from ciao_kernel.model import Replica
from ciao_kernel.readings import Reading, fold, read

MOST_POINTS = 500
"""Points of a curve that are kept; a picture has no more columns to show them in."""
_LONGEST = 8_000  # characters of a line that are read
_MOST_NAMES = 200
_CURIOUS = 5_000  # lines that are read for names alone, to tell what there is if a wish is not

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b.")
_AGAIN = re.compile(r"[\r\x08]+")


class Series:
    """The points of one curve, at most :data:`MOST_POINTS`, from left to right.

    A point further left than the last one means that the training went back, to a checkpoint
    or to its start: what it does again replaces what it did. So does the same line twice.
    """

    def __init__(self, limit: int = MOST_POINTS) -> None:
        self.x: list[float] = []
        self.y: list[float] = []
        self.axis = ""
        """What ``x`` counts: ``step``, ``epoch`` or ``line``."""
        self._limit = max(16, limit)

    def add(self, x: float, y: float) -> None:
        """Take a point; ``y`` may be no number, or infinite."""
        if self.x and x <= self.x[-1]:
            self.forget(x)
        self.x.append(x)
        self.y.append(y)
        if len(self.x) > self._limit:
            self._thin()

    def forget(self, x: float) -> None:
        """Drop the points from a place on."""
        cut = bisect_left(self.x, x)
        del self.x[cut:], self.y[cut:]

    def _thin(self) -> None:
        """Halve the points: of each few the lowest, the highest and one that is no number."""
        last = len(self.x) - 1
        kept = {0, last}
        for start in range(1, last, 6):
            several = range(start, min(start + 6, last))
            finite = [place for place in several if math.isfinite(self.y[place])]
            kept.update(itertools.islice((one for one in several if one not in finite), 1))
            if finite:
                kept |= {min(finite, key=self._height), max(finite, key=self._height)}
        places = sorted(kept)
        self.x = [self.x[place] for place in places]
        self.y = [self.y[place] for place in places]

    def _height(self, place: int) -> float:
        return self.y[place]


class Progress:
    """Where one replica is: its lines' steps and epochs on one axis that only grows.

    Many programs count steps anew in each epoch; a bar of tqdm begins again.
    """

    _MOST_EPOCHS = 10_000

    def __init__(self) -> None:
        self._epoch: float | None = None
        self._starts: dict[int, float] = {}
        """Where on the axis each epoch's steps begin."""
        self._step = 0.0
        self._total: float | None = None
        self._place: float | None = None

    def note(self, reading: Reading) -> None:
        """Take a line that says no more than which epoch begins."""
        if reading.epoch is not None:
            self._epoch = reading.epoch

    def place(self, reading: Reading) -> tuple[str, float]:
        """Where a line's values stand: what the axis counts, and how many; ``line`` has none."""
        self.note(reading)
        if reading.step is not None:
            self._place = self._start(reading.step) + reading.step
            self._step, self._total = reading.step, reading.total
        if self._place is not None:
            return "step", self._place
        return ("line", 0.0) if self._epoch is None else ("epoch", self._epoch)

    @property
    def sure(self) -> bool:
        """Whether a line that is read twice finds the same place again."""
        return self._epoch is not None

    def _start(self, step: float) -> float:
        epoch = 0 if self._epoch is None else int(self._epoch)
        starts = self._starts
        if starts and epoch < next(iter(starts)):
            starts.clear()  # begun again, before the first line that was seen
        done = max(self._step, self._total or 0.0)
        if epoch not in starts:
            before = max(starts.values(), default=0.0)
            again = bool(starts) and step <= self._step
            starts[epoch] = before + done if again else before
            if len(starts) > self._MOST_EPOCHS:
                del starts[next(iter(starts))]
        elif self._epoch is None and step < self._step and self._step == self._total:
            starts[epoch] += done
        return starts[epoch]


class Metrics:
    """The curves of a job: for each metric that is asked for, one of each replica.

    Args:
        wishes: Names of metrics, as the user writes them.
    """

    def __init__(self, wishes: tuple[str, ...]) -> None:
        self.wishes = tuple(dict.fromkeys(map(fold, wishes)))
        self.curves: dict[str, dict[Replica, Series]] = {wish: {} for wish in self.wishes}
        self._names: Counter[str] = Counter()
        self._progress: dict[Replica, Progress] = {}
        self._curious = _CURIOUS
        words = {max(wish.split("_"), key=len) for wish in self.wishes}
        pattern = "|".join(map(re.escape, sorted(words | {"epoch"})))
        self._worth = re.compile(pattern, re.I)

    @property
    def missing(self) -> tuple[str, ...]:
        """The metrics that no line had."""
        return tuple(wish for wish, curves in self.curves.items() if not curves)

    def seen(self, most: int = 8) -> list[str]:
        """Names that lines have, the frequent ones first."""
        return [name for name, _ in self._names.most_common(most)]

    def add(self, replica: Replica, data: bytes) -> bool:
        """Take whole lines of a replica; return whether a curve changed."""
        text = data.decode("utf-8", "replace")
        if self._curious <= 0 and not self._worth.search(text):
            return False
        changed = False
        for part in _parts(text):
            curious = self._curious > 0
            if curious or self._worth.search(part):
                self._curious -= curious
                changed |= self._take(replica, read(part[:_LONGEST]))
        return changed

    def peek(self, replica: Replica, tail: bytes) -> bool:
        """Take the end of a line that is not finished, such as a bar; it comes again whole."""
        progress = self._progress.get(replica)
        if progress is None or not progress.sure:
            return False
        # What stands behind the last carriage return may be half a number.
        *_, first, part, _ = ("", "", *_AGAIN.split(tail[-2000:].decode("utf-8", "replace")))
        if not self._worth.search(part) or (not first and len(tail) > 2000):
            return False
        found = read(_ESCAPES.sub("", part))
        return found.step is not None and self._take(replica, found)

    def _take(self, replica: Replica, found: Reading) -> bool:
        progress = self._progress.setdefault(replica, Progress())
        values = found.values
        wanted = {
            wish: values.get(wish, values.get(f"train_{wish}", 0.0))
            for wish in self.wishes
            if wish in values or f"train_{wish}" in values
        }
        prose = not found.marked and found.step is None and found.epoch is None
        if self._curious > 0 and not prose and len(self._names) < _MOST_NAMES:
            self._names.update(values.keys())
        if not wanted:
            progress.note(found)
            return False
        axis, place = progress.place(found)
        for wish, value in wanted.items():
            series = self.curves[wish].setdefault(replica, Series())
            if series.axis != axis:
                if series.axis == "step":
                    continue
                series.axis = axis
                series.forget(-math.inf)
            if axis == "line":  # counted here, for each metric alone
                place = series.x[-1] + 1 if series.x else 1.0
            series.add(place, value)
        return True


def _parts(text: str) -> Iterator[str]:
    """The lines of a text, and what was written over within each, without escape sequences."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    for line in text.split("\n"):
        if "\r" in line or "\x08" in line:
            yield from filter(None, _AGAIN.split(line))
        elif line:
            yield line
