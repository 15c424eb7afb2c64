"""Draws the curves of a job's metrics: turns points into shapes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ciao_kernel.display.plot.aggregate import FEW, CurvesByReplica, ordered, summary, together
from ciao_kernel.display.plot.axes import Axis, fits, linear, linear_or_log, number
from ciao_kernel.display.plot.metrics import Metrics
from ciao_kernel.display.plot.stroke_font import length
from ciao_kernel.display.plot.svg import Area, Line, Picture, Point, Shape, Text
from ciao_kernel.model import Replica
from ciao_kernel.model.replica_colors import ReplicaColor, color_of

WIDTH = 720
_PANEL = 200
"""Height of the area between the axes of one metric."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 28, 38, 44
_ROW = 18
_DASH = (6, 4)
_SUMMARY = color_of(Replica("worker", 0)).html
"""Colour of the median and the range of many replicas."""
PANELS = 12
"""Maximum number of metrics that are drawn; the others are described as text."""
_POINTS = 12_000
"""Maximum number of points in all: more points make many curves slower, but not sharper."""
_MARKS = 20
_WIDE = 80
"""Maximum width of a label below the axis; an axis with wider labels has fewer ticks."""


def draw(metrics: Metrics, title: str) -> Picture:
    """Draw one panel below the other, for each metric that has points."""
    drawn = [(name, some) for name, each in metrics.curves.items() if (some := ordered(each))]
    most = _POINTS // max(1, sum(len(some) for _, some in drawn[:PANELS] if len(some) <= FEW))
    panels = [_Panel(name, _thinned(some, most)) for name, some in drawn[:PANELS]]
    left = max((panel.left for panel in panels), default=0.0)
    # Metrics with the same unit share an axis: a validation loss lines up with the training's.
    places: dict[str, list[float]] = {}
    for panel in panels:
        places.setdefault(panel.kind, []).extend(panel.places)
    across = {kind: _across(several) for kind, several in places.items()}
    shapes: list[Shape] = []
    top = 0.0
    for panel in panels:
        top += panel.draw(top, left, across[panel.kind], shapes)
    return Picture(WIDTH, math.ceil(top), shapes, title)


def _thinned(curves: CurvesByReplica, most: int) -> CurvesByReplica:
    if len(curves) > FEW:
        return curves
    return {who: series.copy(most) for who, series in curves.items()}


class _Panel:
    """One metric: its legend above its axes."""

    def __init__(self, name: str, curves: CurvesByReplica) -> None:
        self._name, self._curves = name, curves
        every = [y for series in curves.values() for y in series.y]
        finite = [y for y in every if fits(y)]
        self._has_nonfinite = len(finite) < len(every)
        self.places = [x for series in curves.values() for x in series.x]
        kinds = [series.axis for series in curves.values()]
        self.kind = max(sorted(set(kinds)), key=kinds.count)
        """Unit that the horizontal axis counts."""
        self._up = linear_or_log(finite or [0.0, 1.0], 5)

    @property
    def left(self) -> float:
        """Width of the labels next to the vertical axis."""
        return max(_LEFT, *(_length(self._up.label(tick)) + 14 for tick in self._up.ticks))

    def draw(self, top: float, left: float, across: Axis, shapes: list[Shape]) -> float:
        """Add the shapes below ``top``; return their height."""
        name, curves = self._name, self._curves
        many = len(curves) > FEW
        entries = (
            summary(curves)
            if many
            else [f"{who} {number(series.y[-1])}" for who, series in curves.items()]
        )
        start = max(left, 10.0 * len(name) + 24)
        colors = [] if many else [color_of(who) for who in curves]
        legend, rows = _legend(entries, top + 18, start, colors)
        above = top + _TOP + rows * _ROW
        frame = _Frame(across, self._up, above, left)
        shapes += [Text(2, top + 18, name, size=14, bold=True), *legend]
        shapes += frame.grid(self.kind)
        if not many and self._has_nonfinite:
            shapes.append(Text(WIDTH - _RIGHT, above + _PANEL + 34, "× nan or inf", "end"))
        shapes += frame.span(curves) if many else frame.lines(curves)
        return above - top + _PANEL + _BOTTOM


def _across(places: Sequence[float]) -> Axis:
    axis = linear(places, 7, whole=True)
    wide = max((_length(axis.label(tick)) for tick in axis.ticks), default=0.0)
    return axis if wide < _WIDE else linear(places, 4, whole=True)


def _length(label: str) -> float:
    """Return the maximum length of a label; each front end has its own font."""
    return 1.1 * length(label, 12)


def _legend(
    entries: Sequence[str], first: float, start: float, colors: Sequence[ReplicaColor]
) -> tuple[list[Shape], int]:
    """Return each entry with a sample of its line, and the number of extra rows.

    Args:
        entries: Texts.
        first: Base line of the first row.
        start: Left edge.
        colors: Colours of the entries' replicas; empty for the median and the range of many.
    """
    shapes: list[Shape] = []
    left, row = start, 0
    for place, entry in enumerate(entries):
        width = 34 + 7.0 * len(entry)
        if left + width > WIDTH and left > start:
            left, row = start, row + 1
        y = first + row * _ROW
        sample = ((left, y - 4), (left + 20, y - 4))
        if colors:
            shapes.append(Line(sample, colors[place].html, 2, _dash(colors[place])))
        elif place:
            shapes.append(Area(_moved(sample, -4), _moved(sample, 4), _SUMMARY, 0.25))
        else:
            shapes.append(Line(sample, _SUMMARY, 2))
        shapes.append(Text(left + 26, y, entry))
        left += width
    return shapes, row


def _moved(points: Sequence[Point], down: float) -> list[Point]:
    return [(x, y + down) for x, y in points]


class _Frame:
    """Axes of one metric, and positions of values between them."""

    def __init__(self, across: Axis, up: Axis, top: float, left: float) -> None:
        self._across, self._up = across, up
        self._top, self._bottom, self._left = top, top + _PANEL, left

    def grid(self, label: str) -> list[Shape]:
        """Return ticks, light lines, and the label of the horizontal axis."""
        shapes: list[Shape] = []
        right = WIDTH - _RIGHT
        for tick in self._up.ticks:
            y = self._y(tick)
            shapes.append(Line(((self._left, y), (right, y)), opacity=0.25))
            shapes.append(Text(self._left - 8, y + 4, self._up.label(tick), "end"))
        for tick in self._across.ticks:
            x = self._x(tick)
            shapes.append(Line(((x, self._bottom), (x, self._bottom + 4)), opacity=0.6))
            words = self._across.label(tick)
            x = min(x, WIDTH - _length(words) / 2)
            shapes.append(Text(x, self._bottom + 18, words, "middle"))
        shapes.append(Line(((self._left, self._bottom), (right, self._bottom)), opacity=0.6))
        shapes.append(Text((self._left + right) / 2, self._bottom + 34, label, "middle"))
        return shapes

    def lines(self, curves: CurvesByReplica) -> Iterator[Shape]:
        """Yield a curve for each replica, broken at NaN and infinity, with a dot at its end."""
        for who, series in curves.items():
            color, dash = color_of(who).html, _dash(color_of(who))
            piece: list[Point] = []
            odd = 0
            for x, y in zip((*series.x, math.nan), (*series.y, math.nan), strict=True):
                if fits(y):
                    piece.append((self._x(x), self._y(y)))
                    continue
                if piece:
                    width = 1.8 if len(piece) > 1 else 4
                    yield Line(tuple(piece), color, width, dash if piece[1:] else ())
                    last, piece = piece[-1], []
                    if x != x:
                        yield Line((last,), color, 6)
                if x == x and (odd := odd + 1) <= _MARKS:
                    yield from self._cross(self._x(x), color)

    def span(self, curves: CurvesByReplica) -> list[Shape]:
        """Return the median of many replicas, and the area that contains all of them."""
        points = list(together(curves))
        top = [(self._x(x), self._y(high)) for x, _, _, high in points]
        bottom = [(self._x(x), self._y(low)) for x, low, _, _ in points]
        middle = [(self._x(x), self._y(value)) for x, _, value, _ in points]
        if not points:
            return []
        return [
            Area(top, bottom, _SUMMARY, 0.25),
            Line(middle, _SUMMARY, 2),
            Line(middle[-1:], _SUMMARY, 6),
        ]

    def _cross(self, x: float, color: str) -> Iterator[Shape]:
        """Mark a value without a position (NaN or infinite) at the top."""
        y = self._top + 4
        yield Line(((x - 3, y - 3), (x + 3, y + 3)), color, 1.5)
        yield Line(((x - 3, y + 3), (x + 3, y - 3)), color, 1.5)

    def _x(self, value: float) -> float:
        return self._left + self._across.at(value) * (WIDTH - self._left - _RIGHT)

    def _y(self, value: float) -> float:
        return self._bottom - self._up.at(value) * _PANEL


def _dash(color: ReplicaColor) -> tuple[int, ...]:
    return _DASH if color.repeated else ()
