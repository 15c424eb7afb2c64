"""What is learned from: points near a line."""

import random


def measured(count: int) -> list[tuple[float, float]]:
    """Return points near y = 3x + 2, the same each time."""
    chance = random.Random(0)
    places = [chance.uniform(-1, 1) for _ in range(count)]
    return [(x, 3 * x + 2 + chance.gauss(0, 0.1)) for x in places]
