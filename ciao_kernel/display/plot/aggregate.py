"""Aggregates a metric over all replicas, for the plot and its legend.

Few replicas have a curve each. For many replicas, the median and the range of all are shown:
nobody can tell 64 curves apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import median

from ciao_kernel.display.plot.axes import fits, number
from ciao_kernel.display.plot.series import Series
from ciao_kernel.model import Replica

CurvesByReplica = Mapping[Replica, Series]

FEW = 8
"""Maximum number of replicas that have a curve each."""
_PARTS = 120
"""Parts of the axis; the values of many replicas are aggregated in each part."""


def ordered(curves: CurvesByReplica) -> CurvesByReplica:
    """Return the replicas that have points, in an order independent of who wrote first."""
    return {who: curves[who] for who in sorted(curves) if curves[who].x}


def together(curves: CurvesByReplica) -> Iterator[tuple[float, float, float, float]]:
    """Yield position, lowest, median and highest value, if at least half of the replicas have one.

    Replicas may write at different steps: values between two points are interpolated linearly.
    """
    first = min(series.x[0] for series in curves.values())
    last = max(series.x[-1] for series in curves.values())
    part = (last - first) / _PARTS or 1.0
    found: dict[int, list[tuple[float, float, float]]] = {}
    written: set[int] = set()
    for series in curves.values():
        before: tuple[int, float] | None = None
        for place, values in _parts(series, first, part).items():
            written.add(place)
            if not values:
                before = None
                continue
            if before is not None:
                apart, rise = place - before[0], values[0] - before[1]
                for step in range(1, apart):
                    value = before[1] + rise * step / apart
                    found.setdefault(before[0] + step, []).append((value, value, value))
            found.setdefault(place, []).append((min(values), values[-1], max(values)))
            before = place, values[-1]
    for place in sorted(written & found.keys()):
        several = found[place]
        if len(several) * 2 >= len(curves):
            lowest, highest = min(one[0] for one in several), max(one[2] for one in several)
            yield first + part * place, lowest, median(one[1] for one in several), highest


def _parts(series: Series, first: float, part: float) -> dict[int, list[float]]:
    """Return the finite values in each part of the axis."""
    parts: dict[int, list[float]] = {}
    for x, y in zip(series.x, series.y, strict=True):
        values = parts.setdefault(round((x - first) / part), [])
        if fits(y):
            values.append(y)
    return parts


def summary(curves: CurvesByReplica) -> list[str]:
    """Describe the last values of many replicas: the median, the lowest and the highest."""
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
