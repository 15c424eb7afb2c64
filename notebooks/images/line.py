"""What learns: a line."""


class Line:
    """y = slope * x + offset."""

    def __init__(self) -> None:
        self.slope = self.offset = 0.0

    def learn(self, points: list[tuple[float, float]], rate: float = 0.005) -> float:
        """Go through the points once; return the mean of the squared errors."""
        total = 0.0
        for x, y in points:
            error = self.slope * x + self.offset - y
            self.slope -= rate * error * x
            self.offset -= rate * error
            total += error * error
        return total / len(points)
