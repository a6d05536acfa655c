"""Memory of a device, by its address."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from triptych_serving.runtime.device import Device


@dataclass(frozen=True)
class DeviceArray:
    """C-contiguous; never read or written through Python.

    It is a view: what it shows lives until its Memory is closed, or until `owner` is gone where there is one.
    """

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    device: Device
    owner: object = field(default=None, repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def first(self, count: int) -> "DeviceArray":
        """The first of the leading dimension: the same address, fewer rows.

        Raises:
            ValueError: there are not so many.
        """
        return self.part(0, count)

    def part(self, start: int, stop: int) -> "DeviceArray":
        """Of the leading dimension, `start` to `stop`.

        Raises:
            ValueError: it reaches over an end.
        """
        if not 0 <= start <= stop <= self.shape[0]:
            raise ValueError(f"{start}:{stop} is not within the {self.shape[0]} of the leading dimension")
        inner = self.shape[1:]
        address = self.address + start * math.prod(inner) * self.dtype.itemsize
        return replace(self, address=address, shape=(stop - start, *inner))

    def at(self, *indices: int) -> "DeviceArray":
        """The array at fixed leading indices.

        Raises:
            ValueError: an index is out of range, or there are more than dimensions.
        """
        found = self
        for index in indices:
            if not found.shape or not 0 <= index < found.shape[0]:
                raise ValueError(f"there is no {indices} in an array of shape {self.shape}")
            row = found.part(index, index + 1)
            found = replace(row, shape=row.shape[1:])
        return found

    def shaped(self, shape: Sequence[int]) -> "DeviceArray":
        """The same memory from its start in another shape, which may be smaller.

        Raises:
            ValueError: it is larger.
        """
        wanted = replace(self, shape=tuple(shape))
        if wanted.nbytes > self.nbytes:
            raise ValueError(f"shape {wanted.shape} takes {wanted.nbytes} bytes, there are {self.nbytes}")
        return wanted
