"""Several arrays in one block of memory, so that all of them are copied at once."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from triptych_serving.runtime.memory import DeviceArray

Array = NDArray[Any]
ALIGNMENT = 256  # bytes; what a device's own allocations have


@dataclass(frozen=True)
class ArraySpec:
    """One of the arrays."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, shape: Sequence[int], dtype: DTypeLike) -> "ArraySpec":
        """Of any type that numpy knows."""
        return cls(tuple(shape), np.dtype(dtype))

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


class ArrayLayout:
    """Where each array lies.

    Args:
        parts: by name, in their order.
    """

    def __init__(self, parts: Mapping[str, ArraySpec]) -> None:
        self.parts = dict(parts)
        self._offsets: dict[str, int] = {}
        self.nbytes = 0
        for name, part in self.parts.items():
            self._offsets[name] = self.nbytes
            self.nbytes += -(-part.nbytes // ALIGNMENT) * ALIGNMENT

    def views(self, block: NDArray[np.uint8]) -> dict[str, Array]:
        """The arrays in a block of the host, by name."""
        return {
            name: block[offset : offset + part.nbytes].view(part.dtype).reshape(part.shape)
            for (name, part), offset in zip(self.parts.items(), self._offsets.values(), strict=True)
        }

    def arrays(self, block: DeviceArray) -> dict[str, DeviceArray]:
        """The arrays in a block of bytes of a device, by name."""
        return {
            name: replace(block.part(offset, offset + part.nbytes), shape=part.shape, dtype=part.dtype)
            for (name, part), offset in zip(self.parts.items(), self._offsets.values(), strict=True)
        }


Number = TypeVar("Number", bound=np.integer)


def stack_rows(rows: Sequence[Sequence[int] | NDArray[np.integer]], fill: int, kind: type[Number]) -> NDArray[Number]:
    """`[rows, longest]`, shorter rows filled up with `fill`."""
    stacked = np.full((len(rows), max(map(len, rows))), fill, kind)
    for index, row in enumerate(rows):
        stacked[index, : len(row)] = row
    return stacked
