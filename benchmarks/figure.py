"""One measured figure, and how a table of them is written."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """Ours against a peer's, both medians of runs that took turns."""

    what: str
    ours: float
    peer_name: str
    peer: float
    unit: str
    goal: str
    met: bool
    note: str = ""

    @property
    def ratio(self) -> float:
        """Ours divided by the peer's."""
        return self.ours / self.peer if self.peer else float("nan")


def absent(what: str, ours: float, name: str, unit: str, goal: str) -> Figure:
    """The figure of a peer that could not be had: its goal is not met."""
    return Figure(what, ours, name, math.nan, unit, goal, False, "could not be had")


def median(values: Sequence[float]) -> float:
    """The figure to quote of several runs."""
    return statistics.median(values)


def median_range(values: Sequence[float]) -> tuple[float, float]:
    """The two values between which the median of more runs would lie, with a chance of 95 %."""
    ordered = sorted(values)
    half, spread = len(ordered) / 2, 0.98 * math.sqrt(len(ordered))  # of a binomial distribution
    low = max(0, math.floor(half - spread))
    high = min(len(ordered) - 1, math.ceil(half + spread) - 1)
    return ordered[low], ordered[high]


def number(value: float) -> str:
    """A figure with three digits, or all that stand before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.3g}"


def markdown(figures: Sequence[Figure]) -> str:
    """Return the figures as a Markdown table."""
    lines = [
        "| what | ciao | peer | ratio | goal | met | note |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {f.what} | {number(f.ours)} {f.unit} | {number(f.peer)} {f.unit} ({f.peer_name}) "
        f"| {f.ratio:.2f} | {f.goal} | {'yes' if f.met else 'no'} | {f.note} |"
        for f in figures
    ]
    return "\n".join(lines) + "\n"
