"""How long an engine's steps take and how many rows they have, counted without a lock: each thread writes its own tallies."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)


class Histogram:
    """A histogram. One thread writes it; another may read it, and finds it one value behind at worst.

    Args:
        bounds: upper ends of the buckets, ascending, each part of its bucket; what is above the last has one of its own.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """Of all values."""
        return sum(self.counts)

    @classmethod
    def total(cls, bounds: Sequence[float], tallies: Iterable["Histogram"]) -> "Histogram":
        """A new one with the values of several, which all have these bounds."""
        total = cls(bounds)
        for tally in tallies:
            total.counts = [mine + other for mine, other in zip(total.counts, tally.counts, strict=True)]
            total.sum += tally.sum
        return total


class StepStats:
    """Runs of a graph by one thread, or by several once they are summed."""

    __slots__ = ("rows", "seconds")

    def __init__(self) -> None:
        self.seconds = Histogram(SECONDS)
        self.rows = Histogram(ROWS)

    def add(self, seconds: float, rows: int) -> None:
        """Count a run.

        Args:
            seconds: that it took.
            rows: that were in it.
        """
        # Tally.add twice, but for the calls: this is between every two steps.
        times, sizes = self.seconds, self.rows
        times.counts[bisect_left(SECONDS, seconds)] += 1
        times.sum += seconds
        sizes.counts[bisect_left(ROWS, rows)] += 1
        sizes.sum += rows

    @classmethod
    def total(cls, parts: Iterable["StepStats"]) -> "StepStats":
        """The sum of several threads'."""
        steps, total = list(parts), cls()
        total.seconds = Histogram.total(SECONDS, (part.seconds for part in steps))
        total.rows = Histogram.total(ROWS, (part.rows for part in steps))
        return total
