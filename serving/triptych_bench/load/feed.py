"""Which request comes next."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from triptych_bench.target import Request, Sample


@dataclass(frozen=True)
class Batch:
    """Samples that are sent together."""

    request: Request
    samples: tuple[Sample, ...]


class Feed:
    """All requests in a random order, then all again in another.

    Args:
        batches: at least one.
        seed: the same gives the same order.
    """

    def __init__(self, batches: Sequence[Batch], seed: int) -> None:
        self.batches = batches
        self._rng = random.Random(seed)
        self._left: list[int] = []

    def take(self) -> int:
        """The number of a batch."""
        if not self._left:
            self._left = list(range(len(self.batches)))
            self._rng.shuffle(self._left)
        return self._left.pop()
