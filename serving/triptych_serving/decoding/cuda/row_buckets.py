"""Numbers of rows that graphs on a device are run with: few, so that each is bound, and captured, once."""

from bisect import bisect_left

SIZES = (1, 8, 16, 32, 64, 128, 256, 512, 1024)


class RowBuckets:
    """Up to `count` rows."""

    def __init__(self, count: int) -> None:
        self.sizes = (*SIZES[: bisect_left(SIZES, count)], count)
        self._of = [self.sizes[bisect_left(self.sizes, rows)] for rows in range(count + 1)]

    def of(self, rows: int) -> int:
        """The smallest that holds so many."""
        return self._of[rows]
