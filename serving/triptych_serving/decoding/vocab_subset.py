"""The columns of the output projection that the rows of one lane may need: an input of the shortlist graphs.

Columns are appended when rows with new tokens join. When they no longer fit, those that no row needs are dropped.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from triptych_serving.decoding.logits_processor import LogitEdits
from triptych_serving.errors import BundleError
from triptych_serving.runtime.session import Array

SMALLEST = 256  # columns; sizes are this times 1, 1.5, 2, 3, 4, 6, ...: few, because the graph is bound once for each
NEVER = -1e9  # logit of an unused column

Ids = NDArray[np.int64]


class Projection:
    """The whole output projection: `weights` `[V, E]` int8, `scales` and `biases` `[V]`."""

    def __init__(self, weights: NDArray[np.int8], scales: NDArray[np.float32], biases: NDArray[np.float32]) -> None:
        self.weights, self.scales, self.biases = weights, scales, biases

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a bundle's `projection.npz`. Raises BundleError: the file cannot be read, or its arrays are inconsistent."""
        try:
            with np.load(path, allow_pickle=False) as arrays:
                weights, scales, biases = arrays["weights"], arrays["scales"], arrays["biases"]
        except (OSError, ValueError, KeyError) as error:
            raise BundleError(path, [f"not a projection: {error}"]) from error
        whole = weights.ndim == 2 and scales.shape == biases.shape == weights.shape[:1]
        if not whole or [a.dtype for a in (weights, scales, biases)] != [np.int8, np.float32, np.float32]:
            raise BundleError(path, ["not a projection: inconsistent shapes or types of weights, scales and biases"])
        return cls(weights, scales, biases)


class VocabSubset:
    """The selected columns, and their place in the graph's inputs; unused ones have the id `end`. Used by one thread."""

    def __init__(self, projection: Projection, end: int) -> None:
        self._projection = projection
        self._end = end
        self._column_of = np.full(len(projection.weights), -1, np.int64)  # by token; -1: none
        self._buffers: dict[int, Mapping[str, Array]] = {}
        self._count = 0
        self._restart(SMALLEST)

    @property
    def size(self) -> int:
        """Number of columns of the graph's inputs, unused ones included; identifies the inputs."""
        return self._size

    @property
    def inputs(self) -> Mapping[str, Array]:
        """Inputs of the graph; the same arrays for the same size."""
        return self._buffers[self._size]

    def admit(self, wanted: Sequence[Ids], others: Sequence[Ids]) -> None:
        """Add the columns of tokens.

        Args:
            wanted: tokens of the rows that join.
            others: tokens of the rows in the lane.
        """
        every = np.unique(np.concatenate(wanted))
        new = every[self._column_of[every] < 0]
        if self._count + len(new) <= self._size:
            self._append(new)
            return
        needed = np.unique(np.concatenate([every, *others]))
        self._restart(_size_for(len(needed) + len(needed) // 4))
        self._append(needed)

    def column(self, token: int) -> int:
        """Return the column of a token that some row wanted."""
        return int(self._column_of[token])

    def translate(self, edits: LogitEdits) -> LogitEdits:
        """Translate edits of tokens to edits of columns; tokens without a column are left out."""
        columns = self._column_of[edits.tokens]
        here = columns >= 0
        return LogitEdits(columns[here], edits.factors[here], edits.offsets[here])

    def _append(self, tokens: Ids) -> None:
        new = slice(self._count, self._count + len(tokens))
        columns, projection = self.inputs, self._projection
        columns["columns"][:, new] = projection.weights[tokens].T
        columns["column_scales"][new] = projection.scales[tokens]
        columns["column_biases"][new] = projection.biases[tokens]
        columns["column_tokens"][new] = tokens
        self._column_of[tokens] = np.arange(new.start, new.stop)
        self._count = new.stop

    def _restart(self, size: int) -> None:
        if size not in self._buffers:
            self._buffers[size] = {
                "columns": np.zeros((self._projection.weights.shape[1], size), np.int8),
                "column_scales": np.ones(size, np.float32),
                "column_biases": np.zeros(size, np.float32),
                "column_tokens": np.zeros(size, np.int64),
            }
        self._size, self._count = size, 0
        self._column_of.fill(-1)
        self.inputs["column_biases"].fill(NEVER)
        self.inputs["column_tokens"].fill(self._end)


def _size_for(count: int) -> int:
    size = SMALLEST
    while size < count:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return size
