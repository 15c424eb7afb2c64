"""Turns log lines of replicas into curves: ``step 20 loss 0.31`` becomes a point.

log_line.py reads a line, series.py keeps the points.
This module does not draw the curves.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

from ciao_kernel.display.plot.log_line import (
    LOSSES,
    OF_OBJECTS,
    OF_PROSE,
    Reading,
    normalize_name,
    read,
)
from ciao_kernel.display.plot.series import MAX_POINTS, Series, StepAxis
from ciao_kernel.model import Replica

_LONGEST = 8_000  # maximum number of characters read of a line
_MOST_NAMES = 200
_MAX_LINES_FOR_NAMES = (
    5_000  # lines read only for names, to list them if a requested metric is missing
)

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b.")
_AGAIN = re.compile(r"[\r\x08]+")


class Metrics:
    """Curves of a job: for each requested metric, one curve per replica.

    Args:
        wishes: Names of metrics, as the user writes them.
        points: Maximum number of points of a curve.
    """

    def __init__(self, wishes: tuple[str, ...], points: int = MAX_POINTS) -> None:
        self._points = points
        self.wishes = tuple(dict.fromkeys(map(normalize_name, wishes)))
        self.curves: dict[str, dict[Replica, Series]] = {wish: {} for wish in self.wishes}
        self._names: Counter[str] = Counter()
        self._progress: dict[Replica, StepAxis] = {}
        self._before: dict[Replica, tuple[StepAxis, dict[str, Series]]] = {}
        """State before the unfinished line of a replica."""
        self._repeats: set[Replica] = set()
        """Replicas whose next line repeats the best round."""
        self._lines_for_names = _MAX_LINES_FOR_NAMES
        words = {max(wish.split("_"), key=len) for wish in self.wishes}
        pattern = "|".join(map(re.escape, sorted(words | {"epoch", "best iteration"})))
        self._relevant = re.compile(pattern, re.I)

    @property
    def missing(self) -> tuple[str, ...]:
        """Requested metrics that no line contained."""
        return tuple(wish for wish, curves in self.curves.items() if not curves)

    def seen(self, most: int = 8) -> list[str]:
        """Return the names found in lines, the most frequent first."""
        return [name for name, _ in self._names.most_common(most)]

    def add(self, replica: Replica, data: bytes) -> bool:
        """Read whole lines of a replica; return whether a curve changed."""
        text = data.decode("utf-8", "replace")
        if self._lines_for_names <= 0 and not self._relevant.search(text):
            return False
        changed = self._undo_unfinished(replica)
        for part in _parts(text):
            curious = self._lines_for_names > 0
            if curious or self._relevant.search(part):
                self._lines_for_names -= curious
                found = read(part[:_LONGEST])
                if found.precedes_summary:
                    self._repeats.add(replica)
                elif replica in self._repeats and found.step is not None:
                    # The training has not gone back to that round: its curve stays whole.
                    self._repeats.discard(replica)
                else:
                    changed |= self._take(replica, found)
        return changed

    def peek(self, replica: Replica, tail: bytes) -> bool:
        """Read an unfinished line, such as a progress bar; :meth:`add` replaces its points."""
        # The text after the last carriage return is left out: it may end in half a number.
        *_, first, part, _ = ("", "", *_AGAIN.split(tail[-2000:].decode("utf-8", "replace")))
        if not self._relevant.search(part) or (not first and len(tail) > 2000):
            return False
        found = read(_ESCAPES.sub("", part))
        if found.step is None or not self._wanted(found):
            return False
        if replica not in self._before:
            series = {
                wish: curves[replica].copy()
                for wish, curves in self.curves.items()
                if replica in curves
            }
            progress = self._progress.setdefault(replica, StepAxis())
            self._before[replica] = progress.copy(), series
        return self._take(replica, found)

    def _undo_unfinished(self, replica: Replica) -> bool:
        """Undo the points of an unfinished line; return whether there was an unfinished line."""
        if replica not in self._before:
            return False
        self._progress[replica], series = self._before.pop(replica)
        for wish, curves in self.curves.items():
            curves.pop(replica, None)
            if wish in series:
                curves[replica] = series[wish]
        return True

    def _take(self, replica: Replica, found: Reading) -> bool:
        progress = self._progress.setdefault(replica, StepAxis())
        placed = found.step is not None or found.epoch is not None
        if self._lines_for_names > 0 and len(self._names) < _MOST_NAMES:
            sure = found.marked or placed  # otherwise the line may be prose
            self._names.update(
                one
                for one in found.values
                if (sure or LOSSES.search(one))
                and not OF_OBJECTS.search(one)
                and not OF_PROSE.fullmatch(one)
            )
        wanted = self._wanted(found)
        if not wanted:
            progress.note(found)
            return False
        place = progress.place(found)
        if place is None:
            return False
        keep_existing = not placed and not found.of  # a summary, possibly of a test
        changed = False
        for wish, (name, value) in wanted.items():
            changed |= self._append(wish, replica, name, place, value, keep_existing=keep_existing)
        return changed

    def _wanted(self, found: Reading) -> dict[str, tuple[str, float]]:
        """Return the requested metrics of a line, each with its name in the line and its value."""
        values, longer = found.values, found.longer
        wanted = {}
        for wish in self.wishes:
            for name in (wish, f"train_{wish}"):
                if (value := values.get(name, longer.get(name))) is not None:
                    wanted[wish] = name, value
                    break
        return wanted

    def _append(
        self,
        wish: str,
        replica: Replica,
        name: str,
        place: tuple[str, float],
        value: float,
        *,
        keep_existing: bool,
    ) -> bool:
        """Add a point to a curve, unless the curve follows another name or another axis.

        With ``fills``, an existing point of the same step is kept.
        """
        series = self.curves[wish].setdefault(replica, Series(self._points))
        axis, x = place
        if series.name != name:
            # One line of prose may have the wrong name, and so may a summary at the end.
            if series.name and (name != wish or len(series.x) > 1):
                return False
            series.name = name
            series.forget(-math.inf)
        if series.axis != axis:
            if series.axis == "step":
                return False
            series.axis = axis
            series.forget(-math.inf)
        if axis == "line":  # counted here, for each metric separately
            x = series.x[-1] + 1 if series.x else 1.0
        if axis == "step" and keep_existing and x in series.x[-1:]:
            return False
        series.add(x, value)
        return True


def _parts(text: str) -> Iterator[str]:
    """Yield the lines of a text, and the overwritten parts of each, without escape sequences."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    for line in text.split("\n"):
        if "\r" in line or "\x08" in line:
            yield from filter(None, _AGAIN.split(line))
        elif line:
            yield line
