"""Rows of different lengths as one array."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.integer)


def stack_rows(rows: Sequence[Sequence[int] | NDArray[np.integer]], fill: int, kind: type[Number]) -> NDArray[Number]:
    """`[rows, longest]`, shorter rows filled up with `fill`."""
    stacked = np.full((len(rows), max(map(len, rows))), fill, kind)
    for index, row in enumerate(rows):
        stacked[index, : len(row)] = row
    return stacked
