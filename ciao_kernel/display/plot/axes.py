"""Axes of a plot: positions and labels of ticks, and positions of values between two ends."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_STEPS = (1, 2, 2.5, 5, 10)
_LARGE = 1e7
"""Numbers from here on are written with a power of ten."""
_DECADES = 3
"""Values that span at least this many powers of ten get a logarithmic axis."""
_TINY = 1e-300
"""Values closer to 0 count as 0: too little is left to divide."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis; values from ``low`` to ``high`` have positions from 0 to 1."""

    low: float
    high: float
    ticks: tuple[float, ...]
    step: float = 0.0
    """Distance between two ticks; 0 on a logarithmic axis."""
    whole: bool = False
    """True if the axis counts something: its ticks are whole numbers."""

    def at(self, value: float) -> float:
        """Return the position of a value."""
        if not self.step:
            span = math.log10(self.high) - math.log10(self.low)
            return (math.log10(value) - math.log10(self.low)) / span
        return (value - self.low) / (self.high - self.low)

    def label(self, tick: float) -> str:
        """Return the label of a tick."""
        if self.whole:
            return count(tick)
        return number(tick, self.step) if self.step else f"{tick:g}"


def fits(value: float) -> bool:
    """Return whether an axis can show a value: it is a number, and not close to infinity."""
    return abs(value) < 1e300


def number(value: float, step: float = 0.0) -> str:
    """Format a number for readers: ``0.312``, ``12,000``, ``1.2e-05``.

    Args:
        value: Any float.
        step: The value is a multiple of this step; 0 for four significant digits.
    """
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size < step / 1000:
        return "0"
    if step and 1e-3 <= size < _LARGE:
        return f"{value:,.{_digits(step)}f}"
    if step and size:
        power = math.floor(math.log10(size) + 1e-9)
        return f"{value:.{min(_digits(step / 10.0**power), 7 if abs(power) < 99 else 6)}e}"
    if size and not 1e-3 <= size < 1e6:
        return f"{value:.3g}"
    if size >= 1000:
        return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"
    return f"{value:.4g}"


def count(value: float) -> str:
    """Format a count, such as a number of steps: whole numbers in full."""
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e15 else number(value)


def linear(values: Iterable[float], ticks: int, *, whole: bool = False) -> Axis:
    """Make an axis for at least one value.

    Args:
        values: Values to show; each :func:`fits`.
        ticks: Approximate number of ticks; at most one more.
        whole: The values count something, such as steps: the axis ends at the values, is not
            extended below 0, and has whole numbers as ticks if all values are whole numbers.
    """
    several = [value if abs(value) >= _TINY else 0.0 for value in values]
    low, high = min(several), max(several)
    counts = whole and all(value == round(value) for value in several)
    if not high - low > max(abs(high) * 1e-9, _TINY):
        pad = max(1.0, abs(high) * 0.01) if whole else abs(high) * 0.1 or 1.0
        low, high = 0.0 if whole and 0 <= low < pad else low - pad, high + pad
    step = _nice(high / ticks - low / ticks)
    if whole:
        step = max(1.0, float(round(step))) if counts else step
        first = math.ceil(low / step)
    else:
        first = math.floor(low / step)
        low = first * step
        high = math.ceil(high / step) * step
    most = min(2 * ticks, math.floor((high / step - first) * (1 + 1e-12) + 1e-9) + 1)
    marks = tuple((first + place) * step for place in range(most))
    return Axis(low, high, marks, step, counts)


def linear_or_log(values: Iterable[float], ticks: int) -> Axis:
    """Make an axis: logarithmic if all values are positive and far apart."""
    several = list(values)
    low, high = min(several), max(several)
    if low <= _TINY or math.log10(high) - math.log10(low) < _DECADES:
        return linear(several, ticks)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    apart = math.ceil((last - first) / ticks)
    marks = tuple(10.0**power for power in range(first, last + 1, apart))
    return Axis(10.0**first, 10.0**last, marks)


def _nice(step: float) -> float:
    """Return the next larger of 1, 2, 2.5, 5 and their multiples by powers of ten."""
    size = 10.0 ** math.floor(math.log10(step))
    return next((one * size for one in _STEPS if one * size >= step * (1 - 1e-9)), 10 * size)


def _digits(step: float) -> int:
    """Return the number of decimals in which multiples of a step differ."""
    for digits in range(9):
        size = step * 10**digits
        if round(size) >= 1 and abs(size - round(size)) < 1e-6 * size:
            return digits
    return 9
