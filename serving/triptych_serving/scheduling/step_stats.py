"""Histograms of the duration and size of an engine's steps. No locks: each thread writes its own."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)


class Histogram:
    """Counts of values. One thread writes; another may read, and at worst misses the latest value.

    Args:
        bounds: inclusive upper ends of the buckets, ascending; one more bucket holds larger values.
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
        """Number of values."""
        return sum(self.counts)

    @classmethod
    def total(cls, bounds: Sequence[float], parts: Iterable["Histogram"]) -> "Histogram":
        """Sum histograms that all have these bounds."""
        total = cls(bounds)
        for part in parts:
            total.counts = [mine + other for mine, other in zip(total.counts, part.counts, strict=True)]
            total.sum += part.sum
        return total


class StepStats:
    """Runs of a graph by one thread, or the sum of several threads."""

    __slots__ = ("rows", "seconds")

    def __init__(self) -> None:
        self.seconds = Histogram(SECONDS)
        self.rows = Histogram(ROWS)

    def add(self, seconds: float, rows: int) -> None:
        """Count a run of `rows` rows that took `seconds`."""
        # Histogram.add twice, without the calls: this is between every two steps.
        times, sizes = self.seconds, self.rows
        times.counts[bisect_left(SECONDS, seconds)] += 1
        times.sum += seconds
        sizes.counts[bisect_left(ROWS, rows)] += 1
        sizes.sum += rows

    @classmethod
    def total(cls, parts: Iterable["StepStats"]) -> "StepStats":
        """Sum the runs of several threads."""
        steps, total = list(parts), cls()
        total.seconds = Histogram.total(SECONDS, (part.seconds for part in steps))
        total.rows = Histogram.total(ROWS, (part.rows for part in steps))
        return total
