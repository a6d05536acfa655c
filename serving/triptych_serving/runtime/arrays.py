"""Arrays of numpy: several in one block of memory that is copied at once, and padding of ragged rows."""

import math
import mmap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from triptych_serving.runtime.memory import DeviceArray

Array = NDArray[Any]
ALIGNMENT = 256  # bytes, as in a device's own allocations


@dataclass(frozen=True)
class ArraySpec:
    """Shape and type of one array in a block."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, shape: Sequence[int], dtype: DTypeLike) -> "ArraySpec":
        """Make a spec from anything that numpy accepts as a type."""
        return cls(tuple(shape), np.dtype(dtype))

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


class ArrayLayout:
    """Positions of several arrays in one block of memory, by name and in their order."""

    def __init__(self, parts: Mapping[str, ArraySpec]) -> None:
        self.parts = dict(parts)
        self._offsets: dict[str, int] = {}
        self.nbytes = 0
        for name, part in self.parts.items():
            self._offsets[name] = self.nbytes
            self.nbytes += -(-part.nbytes // ALIGNMENT) * ALIGNMENT

    def views(self, block: NDArray[np.uint8]) -> dict[str, Array]:
        """Return the arrays in a block of host memory, by name."""
        return {
            name: block[offset : offset + part.nbytes].view(part.dtype).reshape(part.shape)
            for (name, part), offset in zip(self.parts.items(), self._offsets.values(), strict=True)
        }

    def arrays(self, block: DeviceArray) -> dict[str, DeviceArray]:
        """Return the arrays in a block of device memory, by name."""
        return {
            name: replace(block.part(offset, offset + part.nbytes), shape=part.shape, dtype=part.dtype)
            for (name, part), offset in zip(self.parts.items(), self._offsets.values(), strict=True)
        }


def sparse_zeros(shape: Sequence[int], dtype: DTypeLike) -> Array:
    """Make zeros whose memory is used as it is written, in pages of 4 KiB.

    numpy asks Linux for huge pages, of which one token in a head's cache uses 2 MiB: after a few requests, a server of
    SmolLM2-135M had 5.4 GB instead of 0.5 GB.

    Raises:
        OSError: the system refuses to reserve as much, as does MemoryError.
    """
    spec = ArraySpec.of(shape, dtype)
    if not hasattr(mmap, "MADV_NOHUGEPAGE") or not spec.nbytes:
        return np.zeros(shape, dtype)
    memory = mmap.mmap(-1, spec.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, spec.dtype).reshape(spec.shape)


Number = TypeVar("Number", bound=np.integer)


def stack_rows(rows: Sequence[Sequence[int] | NDArray[np.integer]], fill: int, kind: type[Number]) -> NDArray[Number]:
    """Stack rows into `[rows, longest]`, padding shorter ones with `fill`."""
    stacked = np.full((len(rows), max(map(len, rows))), fill, kind)
    for index, row in enumerate(rows):
        stacked[index, : len(row)] = row
    return stacked
