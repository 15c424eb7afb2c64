"""Curves as text, for terminals and for front ends that show only text."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ciao_kernel.display.plot.aggregate import FEW, CurvesByReplica, ordered, summary, together
from ciao_kernel.display.plot.axes import Axis, count, fits, number
from ciao_kernel.display.plot.metrics import Metrics

_BLOCKS = "▁▂▃▄▅▆▇█"
_SPARK = 24
_SHORT = 8
_MOST = 4
"""Maximum number of metrics that one line shows with their values."""


def describe(metrics: Metrics) -> list[str]:
    """Describe each metric, one line per curve: ``loss  worker-0  █▅▃▁  0.31 at step 20``."""
    lines = []
    for name, curves in metrics.curves.items():
        some = ordered(curves)
        if len(some) > FEW:
            lines.append(f"{name}  {_median_spark(some, _SPARK)}  {'; '.join(summary(some))}")
            continue
        width = max((len(str(who)) for who in some), default=0)
        for who, series in some.items():
            value = f"{number(series.y[-1]):>8} at {series.axis} {count(series.x[-1])}"
            spark = _spark(series.x, series.y, _SPARK)
            lines.append(f"{name}  {who!s:{width}}  {spark:{_SPARK}}  {value}")
    return lines


def brief(metrics: Metrics) -> str:
    """Describe the metrics in one line, ``loss █▅▃▁ 0.31 at step 20``; "" if there are none."""
    parts = []
    for name, curves in metrics.curves.items():
        some = ordered(curves)
        if len(some) == 1:
            (series,) = some.values()
            value = f"{number(series.y[-1])} at {series.axis} {count(series.x[-1])}"
            parts.append(f"{name} {_spark(series.x, series.y, _SHORT)} {value}")
        elif some:
            parts.append(f"{name} {_median_spark(some, _SHORT)} {summary(some)[0]}")
    more = len(parts) - _MOST
    return "; ".join(parts[:_MOST] + ([f"and {more} more"] if more > 0 else []))


def unseen(metrics: Metrics) -> str:
    """Name the metrics that no line contained, and the names found; "" if none is missing."""
    missing = metrics.missing
    if not missing:
        return ""
    names = " or ".join(f"`{name}`" for name in missing)
    known = ", ".join(metrics.seen())
    return f"no line with {names} was found" + (f"; names found: {known}." if known else ".")


def _median_spark(curves: CurvesByReplica, most: int) -> str:
    points = list(together(curves))
    return _spark([one[0] for one in points], [one[2] for one in points], most) if points else "×"


def _spark(places: Sequence[float], values: Sequence[float], most: int) -> str:
    """Return a curve as one row of blocks, each for an equal part of the axis."""
    parts = min(most, len(values))
    apart = (places[-1] - places[0]) / parts
    ends = (bisect_right(places, places[0] + apart * part) for part in range(1, parts))
    some = [*(values[end - 1] for end in ends), values[-1]]
    finite = [value for value in some if fits(value)]
    if not finite:
        return "×" * len(some)
    low, high, top = min(finite), max(finite), len(_BLOCKS) - 1
    axis = Axis(low, high, (), 1)
    return "".join(
        "×" if not fits(value) else _BLOCKS[round(axis.at(value) * top) if high > low else 0]
        for value in some
    )
