"""Tells from readings of a replica's memory how much it needs: after its end, as a sentence."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ciao_kernel.magics import stored_header
from ciao_kernel.model import Job, Replica
from ciao_kernel.model.usage import size_text

_FEWEST = 4
"""Readings without which nothing is told."""
_ENOUGH = 5
"""Readings without which a peak is not told."""
_GROWTH = 0.05
"""Part of the limit by which a series that grows has grown at least."""
_STEADY = 0.6
"""Part of the growth that one pause may have at most: more is a jump."""
_QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)([A-Za-z]{0,2})")


@dataclass(frozen=True, slots=True)
class Point:
    """One reading of a replica."""

    at: float
    """Seconds, monotonic."""
    memory: int
    peak: int = 0
    limit: int = 0
    step: int | None = None
    """The step that its newest line names."""


def memory_of(job: Job, role: str) -> str:
    """Return the memory that the job's stored header gives to a role; "" if it gives none."""
    return stored_header.of_role(job.header, "memory", role) or ""


def times(quantity: str, factor: float) -> str:
    """Return a multiple of a quantity of Kubernetes in its unit, "" if it cannot be read."""
    match = _QUANTITY.fullmatch(quantity.strip("'\""))
    return f"{factor * float(match[1]):.12g}{match[2]}" if match else ""


def after_kill(replica: Replica, memory: str, points: Sequence[Point]) -> str:
    """Return what a replica that was killed for its memory needs; "" if the readings do not tell.

    Args:
        replica: The replica.
        memory: The value of its %memory.
        points: Its readings, the oldest first.
    """
    if len(points) < _FEWEST:
        return ""
    last = points[-1]
    # The start of a program, with its imports, is no growth.
    counted = [one for one in points if one.step is not None]
    if len(counted) >= _FEWEST and counted[-1].step != counted[0].step:
        shown = counted
    else:
        shown = list(points[len(points) // 2 - 1 :])
    stood = f"{replica} asked for %memory={memory} and stood at {size_text(last.memory)}"
    if not _grows(shown):
        more = times(memory, 1.5)
        return (
            f"{stood} until its last seconds, so it took much more at once: try "
            f"{f'%memory={more}' if more else 'a higher %memory'}, or smaller batches."
        )
    growth, steps = last.memory - shown[0].memory, _steps(shown)
    if steps:
        rate = f"at step {last.step}, after a growth of {size_text(growth / steps)} a step"
    else:
        seconds = max(1.0, last.at - shown[0].at)
        rate = f"after a growth of {size_text(growth / seconds)} a second"
    more = times(memory, 2)
    return (
        f"{stood} {rate}: try {f'%memory={more}' if more else 'a higher %memory'}, or find out "
        "what the program keeps."
    )


def _grows(points: Sequence[Point]) -> bool:
    """Return whether memory rises steadily: not in one jump, and by more than noise."""
    changes = [b.memory - a.memory for a, b in itertools.pairwise(points)]
    growth = sum(changes)
    return (
        growth >= _GROWTH * (points[-1].limit or points[-1].memory)
        and max(changes) <= _STEADY * growth
        and sum(change > 0 for change in changes) * 2 >= len(changes)
    )


def _steps(points: Sequence[Point]) -> int:
    """Return the number of steps between the first and the last reading; 0 if lines tell none."""
    numbers = [one.step for one in points if one.step is not None]
    forwards = all(a <= b for a, b in itertools.pairwise(numbers))
    return numbers[-1] - numbers[0] if len(numbers) == len(points) and forwards else 0


def after_success(
    job: Job, series: Mapping[Replica, Sequence[Point]], highest: Mapping[Replica, int]
) -> str:
    """Name the peak of each role that never used half of its %memory; "" if there is none.

    Args:
        job: The job.
        series: The newest readings of each replica.
        highest: The most bytes that each of them had in any reading.
    """
    told = []
    for role in dict.fromkeys(one.role for one in job.replicas):
        memory = memory_of(job, role)
        members = [one for one in job.replicas if one.role == role]
        found = [series.get(one, []) for one in members]
        if not memory or any(len(points) < _ENOUGH for points in found):
            continue
        limit = min(points[-1].limit for points in found)
        if (peak := max(highest[one] for one in members)) * 2 < limit:
            whose = f"each {role}" if len(found) > 1 else f"{role}-0"
            told.append(f"{whose} used at most {size_text(peak)} of its %memory={memory}")
    return f"{'; '.join(told)}." if told else ""
