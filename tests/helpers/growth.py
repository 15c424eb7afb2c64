"""How work grows with its input: a careless pattern takes the square of a line's length."""

from __future__ import annotations

import time
from collections.abc import Callable

_MORE = 4
_NOISE = 0.1
"""Seconds that do not count: collecting garbage, for one."""


def is_linear(work: Callable[[int], object], size: int) -> bool:
    """Whether four times the input takes about four times the work, and not sixteen times.

    Both are measured here and now, as time of this process: a slow or busy machine changes nothing.

    Args:
        work: Gets the size of its input.
        size: Of the larger input.
    """
    return _seconds(work, size) < 2 * _MORE * _seconds(work, size // _MORE) + _NOISE


def _seconds(work: Callable[[int], object], size: int) -> float:
    started = time.process_time()
    work(size)
    return time.process_time() - started
