"""Waits for something to become true, and says what it waited for when it does not."""

import time
from collections.abc import Callable

from tests.cluster.errors import ClusterError


def until(
    true: Callable[[], object], what: str, seconds: float, *, every: float = 0.1, hint: str = ""
) -> None:
    """Ask until the answer is true.

    Raises:
        ClusterError: it did not become true within so many seconds.
    """
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise ClusterError(f"waited {seconds:.0f} s for {what}", hint)
        time.sleep(every)
