"""Curves of a job's metrics: from points to shapes, and to text where nothing is drawn.

Few replicas have a curve each. Of many there is the median and the span of them all: nobody
can tell 64 curves apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from ciao_kernel.display.axes import Axis, fits, fitting, linear, number
from ciao_kernel.display.shapes import Area, Line, Picture, Point, Shape, Text
from ciao_kernel.metrics import Metrics, Series
from ciao_kernel.model import Replica

Replicas = Mapping[Replica, Series]

WIDTH = 720
_PANEL = 200
"""Height between the axes of one metric."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 28, 38, 44
_ROW = 18
_COLORS = ("#2f86c6", "#d55e00", "#009e73", "#c46a9b", "#a8780a", "#7a6fd0")
"""At least 3:1 on white and on black, and told apart by those who see fewer colours."""
_DASHES: tuple[tuple[int, ...], ...] = ((), (6, 4))
_MOST = 8
"""Replicas that have a curve each."""
_BINS = 120
"""Places at which many replicas are put together."""
_MARKS = 20
_BLOCKS = "▁▂▃▄▅▆▇█"
_SPARK = 24


def draw(metrics: Metrics, title: str) -> Picture:
    """Draw one panel below the other, for each metric that has points."""
    shapes: list[Shape] = []
    top = 0.0
    for name, curves in metrics.curves.items():
        if curves:
            panel, height = _panel(name, _sorted(curves), top)
            shapes += panel
            top += height
    return Picture(WIDTH, math.ceil(top), shapes, title)


def describe(metrics: Metrics) -> list[str]:
    """Say how each metric is, one line a curve: ``loss  worker-0  0.31 at step 20  █▅▃▁``."""
    lines = []
    for name, curves in metrics.curves.items():
        some = _sorted(curves)
        if not some:
            continue
        if len(some) > _MOST:
            points = [(low, middle, high) for _, low, middle, high in _together(some)]
            spark = _spark([middle for _, middle, _ in points])
            lines.append(f"{name}  {spark}  {'; '.join(_summary(some))}")
            continue
        width = max(len(str(who)) for who in some)
        for who, series in some.items():
            value = f"{number(series.y[-1]):>8} at {series.axis} {number(series.x[-1])}"
            lines.append(f"{name}  {who!s:{width}}  {_spark(series.y):{_SPARK}}  {value}")
    return lines


def unseen(metrics: Metrics) -> str:
    """Name the metrics that no line had, and those that lines have; "" where none is missing."""
    missing = metrics.missing
    if not missing:
        return ""
    names = " or ".join(f"`{name}`" for name in missing)
    known = ", ".join(metrics.seen())
    return f"no line with {names} was seen" + (f"; seen were: {known}." if known else ".")


def _sorted(curves: Replicas) -> Replicas:
    """The replicas that have points, in an order that does not hang on who wrote first."""
    return {who: curves[who] for who in sorted(curves) if curves[who].x}


def _panel(name: str, curves: Replicas, top: float) -> tuple[list[Shape], float]:
    """One metric: its legend above its axes. Returns the height too."""
    many = len(curves) > _MOST
    entries = (
        _summary(curves)
        if many
        else [f"{who} {number(series.y[-1])}" for who, series in curves.items()]
    )
    legend, rows = _legend(entries, top + 18, len(name), many=many)
    above = top + _TOP + rows * _ROW
    finite = [y for series in curves.values() for y in series.y if fits(y)]
    places = [x for series in curves.values() for x in series.x]
    kinds = [series.axis for series in curves.values()]
    across = linear(places, 7, whole=True)
    up = fitting(finite or [0.0, 1.0], 5)
    frame = _Frame(across, up, above)
    shapes: list[Shape] = [Text(2, top + 18, name, size=14, bold=True), *legend]
    shapes += frame.grid(max(sorted(set(kinds)), key=kinds.count))
    if not many and len(finite) < len(places):
        shapes.append(Text(WIDTH - _RIGHT, above + _PANEL + 34, "× nan or inf", "end"))
    shapes += frame.span(curves) if many else frame.lines(curves)
    return shapes, above - top + _PANEL + _BOTTOM


def _legend(
    entries: Sequence[str], first: float, indent: int, *, many: bool
) -> tuple[list[Shape], int]:
    """Each entry behind a piece of its line; returns the further rows that they need too."""
    shapes: list[Shape] = []
    start = max(_LEFT, 10.0 * indent + 24)
    left, row = start, 0
    for place, entry in enumerate(entries):
        width = 34 + 7.0 * len(entry)
        if left + width > WIDTH and left > start:
            left, row = start, row + 1
        y = first + row * _ROW
        sample = ((left, y - 4), (left + 20, y - 4))
        if many and place:
            shapes.append(Area(_moved(sample, -4), _moved(sample, 4), _COLORS[0], 0.25))
        else:
            shapes.append(Line(sample, _color(place), 2, _dash(place)))
        shapes.append(Text(left + 26, y, entry))
        left += width
    return shapes, row


def _moved(points: Sequence[Point], down: float) -> list[Point]:
    return [(x, y + down) for x, y in points]


class _Frame:
    """The axes of one metric, and where values lie between them."""

    def __init__(self, across: Axis, up: Axis, top: float) -> None:
        self._across, self._up = across, up
        self._top, self._bottom = top, top + _PANEL

    def grid(self, label: str) -> list[Shape]:
        """Ticks, light lines, and what the axis below counts."""
        shapes: list[Shape] = []
        right = WIDTH - _RIGHT
        for tick in self._up.ticks:
            y = self._y(tick)
            shapes.append(Line(((_LEFT, y), (right, y)), opacity=0.25))
            shapes.append(Text(_LEFT - 8, y + 4, self._up.label(tick), "end"))
        for tick in self._across.ticks:
            x = self._x(tick)
            shapes.append(Line(((x, self._bottom), (x, self._bottom + 4)), opacity=0.6))
            shapes.append(Text(x, self._bottom + 18, self._across.label(tick), "middle"))
        shapes.append(Line(((_LEFT, self._bottom), (right, self._bottom)), opacity=0.6))
        shapes.append(Text((_LEFT + right) / 2, self._bottom + 34, label, "middle"))
        return shapes

    def lines(self, curves: Replicas) -> Iterator[Shape]:
        """A curve for each replica, broken where a value is no number, and a dot at its end."""
        for place, series in enumerate(curves.values()):
            color = _color(place)
            piece: list[Point] = []
            odd = 0
            for x, y in zip((*series.x, math.nan), (*series.y, math.nan), strict=True):
                if fits(y):
                    piece.append((self._x(x), self._y(y)))
                    continue
                if piece:
                    width = 1.8 if len(piece) > 1 else 4
                    yield Line(tuple(piece), color, width, _dash(place) if piece[1:] else ())
                    last, piece = piece[-1], []
                    if x != x:
                        yield Line((last,), color, 6)
                if x == x and (odd := odd + 1) <= _MARKS:
                    yield from self._cross(self._x(x), color)

    def span(self, curves: Replicas) -> list[Shape]:
        """The median of many replicas, and the area that all of them lie in."""
        points = list(_together(curves))
        top = [(self._x(x), self._y(high)) for x, _, _, high in points]
        bottom = [(self._x(x), self._y(low)) for x, low, _, _ in points]
        middle = [(self._x(x), self._y(value)) for x, _, value, _ in points]
        if not points:
            return []
        return [
            Area(top, bottom, _COLORS[0], 0.25),
            Line(middle, _COLORS[0], 2),
            Line(middle[-1:], _COLORS[0], 6),
        ]

    def _cross(self, x: float, color: str) -> Iterator[Shape]:
        """Marks at the top what has no place: no number, or infinite."""
        y = self._top + 4
        yield Line(((x - 3, y - 3), (x + 3, y + 3)), color, 1.5)
        yield Line(((x - 3, y + 3), (x + 3, y - 3)), color, 1.5)

    def _x(self, value: float) -> float:
        return _LEFT + self._across.at(value) * (WIDTH - _LEFT - _RIGHT)

    def _y(self, value: float) -> float:
        return self._bottom - self._up.at(value) * _PANEL


def _together(curves: Replicas) -> Iterator[tuple[float, float, float, float]]:
    """Place, lowest, median and highest of all replicas, where at least half of them are."""
    low = min(series.x[0] for series in curves.values())
    high = max(series.x[-1] for series in curves.values())
    bins: dict[int, dict[Replica, list[float]]] = {}
    for who, series in curves.items():
        for x, y in zip(series.x, series.y, strict=True):
            if fits(y):
                place = round((x - low) / (high - low) * _BINS) if high > low else 0
                bins.setdefault(place, {}).setdefault(who, []).append(y)
    for place, found in sorted(bins.items()):
        if len(found) * 2 >= len(curves):
            every = [y for values in found.values() for y in values]
            middle = median(values[-1] for values in found.values())
            yield low + (high - low) * place / _BINS, min(every), middle, max(every)


def _summary(curves: Replicas) -> list[str]:
    """How many replicas stand now: the middle, and who is at the ends."""
    last = {who: series.y[-1] for who, series in curves.items()}
    numbers = {who: y for who, y in last.items() if not math.isnan(y)}
    if not numbers:
        return [f"{len(last)} replicas: nan"]
    lost = f", {len(last) - len(numbers)} of them nan" if len(numbers) < len(last) else ""
    least, most = min(numbers, key=numbers.__getitem__), max(numbers, key=numbers.__getitem__)
    return [
        f"median of {len(last)} replicas{lost} {number(median(numbers.values()))}",
        f"lowest {least} {number(numbers[least])}, highest {most} {number(numbers[most])}",
    ]


def _spark(values: Sequence[float]) -> str:
    """A curve as one row of blocks."""
    count = min(_SPARK, len(values))
    some = [values[(place + 1) * len(values) // count - 1] for place in range(count)]
    finite = [value for value in some if fits(value)]
    if not finite:
        return "×" * len(some)
    low, high, top = min(finite), max(finite), len(_BLOCKS) - 1
    axis = Axis(low, high, (), 1)
    return "".join(
        "×" if not fits(value) else _BLOCKS[round(axis.at(value) * top) if high > low else 0]
        for value in some
    )


def _color(place: int) -> str:
    return _COLORS[place % len(_COLORS)]


def _dash(place: int) -> tuple[int, ...]:
    return _DASHES[place // len(_COLORS) % len(_DASHES)]
