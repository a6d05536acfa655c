"""The highest rate that passes: first a bracket, then its middle."""

GROWTH = 1.25  # while every rate passes
FIRST = 0.7  # of the capacity: at all of it a queue without end would build up
LEAST = 0.01  # of the capacity: less is none


class Search:
    """Asks for one rate after the other.

    Args:
        capacity: about what the server does when it always has work.
        resolution: how far apart the highest that passed and the lowest that failed may be in the end, as a fraction.
    """

    def __init__(self, capacity: float, resolution: float) -> None:
        self._least = LEAST * capacity
        self._resolution = resolution
        self.failed: float | None = None  # the lowest that did not pass
        self.found = 0.0  # the highest that passed
        self.rate = FIRST * capacity  # to try next
        self._doubted = False

    def learn(self, passed: bool) -> None:
        """What became of `rate`."""
        if passed and self._doubted:
            self.failed = None
        self._doubted = False
        if passed:
            self.found = max(self.found, self.rate)
        else:
            self.failed = self.rate if self.failed is None else min(self.failed, self.rate)
        self.rate = self.found * GROWTH if self.failed is None else (self.found + self.failed) / 2

    def doubt(self) -> None:
        """Try the lowest rate that failed once more: one bad moment of the machine must not end the search far below."""
        if self.failed is not None:
            self._doubted = True
            self.rate = self.failed

    @property
    def over(self) -> bool:
        """Near enough, or there is no rate that passes."""
        if self.failed is None:
            return False
        return self.failed - self.found <= self._resolution * self.failed or self.failed < self._least
