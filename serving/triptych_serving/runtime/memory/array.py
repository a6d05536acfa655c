"""Arrays in device memory, by address, and regions of caches that are copied."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triptych_serving.runtime.device import Device


@dataclass(frozen=True)
class DeviceArray:
    """A C-contiguous array in device memory; never read or written through Python.

    It is a view: its content lives until its Memory is closed, or as long as `owner` if there is one.
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
        """Return the first `count` entries of the leading dimension. Raises ValueError: there are fewer."""
        return self.part(0, count)

    def part(self, start: int, stop: int) -> "DeviceArray":
        """Return `start` to `stop` of the leading dimension. Raises ValueError: the range is out of bounds."""
        if not 0 <= start <= stop <= self.shape[0]:
            raise ValueError(f"{start}:{stop} is not within the {self.shape[0]} of the leading dimension")
        inner = self.shape[1:]
        address = self.address + start * math.prod(inner) * self.dtype.itemsize
        return replace(self, address=address, shape=(stop - start, *inner))

    def at(self, *indices: int) -> "DeviceArray":
        """Return the sub-array at leading indices.

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
        """Return the same memory from its start in another shape, which may be smaller. Raises ValueError: it is larger."""
        wanted = replace(self, shape=tuple(shape))
        if wanted.nbytes > self.nbytes:
            raise ValueError(f"shape {wanted.shape} takes {wanted.nbytes} bytes, there are {self.nbytes}")
        return wanted


RANK = 5


@dataclass(frozen=True)
class CacheRegion:
    """The region `array[:, rows, :, positions, :]` of a cache `[N, B, H, T, D]`.

    Raises:
        ValueError: the array has another rank, or a range is out of bounds.
    """

    array: DeviceArray
    rows: slice  # of B; without a step
    positions: slice  # of T; without a step

    def __post_init__(self) -> None:
        if len(self.array.shape) != RANK:
            raise ValueError(f"the array's shape is {self.array.shape}, it must be [N, B, H, T, D]")
        _check_range("rows", self.rows, self.array.shape[1])
        _check_range("positions", self.positions, self.array.shape[3])

    @property
    def extent(self) -> tuple[int, int, int, int, int]:
        """Shape of the region."""
        n, _, h, _, d = self.array.shape
        return n, self.rows.stop - self.rows.start, h, self.positions.stop - self.positions.start, d


def check_copy(source: CacheRegion, target: CacheRegion) -> None:
    """Check that one region can be copied to another.

    Raises:
        ValueError: extents, types or devices differ, or the regions overlap.
    """
    if source.extent != target.extent:
        raise ValueError(f"extents differ: {source.extent} is copied to {target.extent}")
    if source.array.dtype != target.array.dtype:
        raise ValueError(f"types differ: {source.array.dtype} is copied to {target.array.dtype}")
    if source.array.device != target.array.device:
        raise ValueError(f"devices differ: {source.array.device} is copied to {target.array.device}")
    same = source.array.address == target.array.address
    if same and _meet(source.rows, target.rows) and _meet(source.positions, target.positions):
        raise ValueError(f"{source.rows}, {source.positions} overlap with {target.rows}, {target.positions} of the same array")


def check_rows(array: DeviceArray, copies: NDArray[np.int32]) -> None:
    """Check copies of rows within a cache, as `Memory.copy_rows` has them. Raises ValueError: one is out of bounds."""
    rows, positions = copies[:, :2], copies[:, 2:]
    if min(rows.min(), positions.min()) < 0 or rows.max() >= array.shape[1] or positions.max() > array.shape[3]:
        raise ValueError(f"copies of rows {rows.tolist()} at {positions.tolist()} exceed a cache of shape {array.shape}")


def _check_range(name: str, part: slice, length: int) -> None:
    start, stop, step = part.start, part.stop, part.step
    if step is not None or start is None or stop is None or not 0 <= start <= stop <= length:
        raise ValueError(f"{name} are {part}, they must be a range within 0 and {length}")


def _meet(one: slice, other: slice) -> bool:
    return bool(max(one.start, other.start) < min(one.stop, other.stop))
