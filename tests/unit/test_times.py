"""Times as people read them."""

from __future__ import annotations

import pytest

from ciao_kernel.model.times import span


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (-5, "0s"), (59.9, "59s"), (60, "1m"), (80, "1m 20s"), (3600, "1h"),
        (3605, "1h"), (7500, "2h 5m"), (86_400 * 3 + 4 * 3600 + 59, "3d 4h"), (86_400 * 9, "9d"),
    ],
)  # fmt: skip
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert span(seconds) == text
