"""Which target tokens a source may need."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray


class Shortlist:
    """A bundle's `shortlist.npz`."""

    def __init__(self, offsets: NDArray[np.int64], targets: NDArray[np.int64], always: NDArray[np.int64]) -> None:
        self._offsets, self._targets, self._always = offsets, targets, always

    @classmethod
    def read(cls, path: Path) -> Self:
        with np.load(path, allow_pickle=False) as arrays:
            return cls(*(arrays[name].astype(np.int64) for name in ("offsets", "targets", "always")))

    def ids(self, source: Sequence[int], extra: Sequence[int] = ()) -> NDArray[np.int64] | None:
        """Sorted ids; None where a source token is unknown."""
        parts = [self._targets[self._offsets[token] : self._offsets[token + 1]] for token in source]
        if not all(map(len, parts)):
            return None
        return np.unique(np.concatenate([self._always, np.array([*source, *extra], np.int64), *parts]))
