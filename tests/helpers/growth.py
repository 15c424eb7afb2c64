"""How work grows with its input: a careless pattern takes the square of a line's length."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

_MORE = 4
_NOISE = 0.1
"""Seconds that do not count: a late import, for one."""
_TRIES = 5


def is_linear(work: Callable[[int], object], size: int) -> bool:
    """Whether four times the input takes about four times the work, and not sixteen times.

    Both are measured here and now, as time of this process, and the best of some tries counts: what
    a busy machine adds comes and goes, and the square of the size stays.

    Args:
        work: Gets the size of its input.
        size: Of the larger input.
    """
    larger = smaller = float("inf")
    for _ in range(_TRIES):
        larger = min(larger, _seconds(work, size))
        smaller = min(smaller, _seconds(work, size // _MORE))
        if larger < 2 * _MORE * smaller + _NOISE:
            return True
    return False


def _seconds(work: Callable[[int], object], size: int) -> float:
    # A collection looks at all that earlier tests have left, as often as the work makes objects.
    gc.disable()
    try:
        started = time.process_time()
        work(size)
        return time.process_time() - started
    finally:
        gc.enable()
