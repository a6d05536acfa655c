"""The interface of every device's memory."""

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import DTypeLike, NDArray

from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory.array import CacheRegion, DeviceArray

RowCopy = tuple[int, int, int, int]  # source row, target row, first position, position after the last


class StreamMark(Protocol):
    """A point in a stream's order of work."""

    def wait(self) -> None:
        """Wait until all work before it is done. Raises EngineError: the device failed."""


class Memory(Protocol):
    """One stream of one device, and its allocations.

    Operations are executed in order, together with the runs of sessions over this memory, and are not complete when a method
    returns. Used by one thread at a time; only marks may be waited for in others. On the CPU operations complete at once.

    All methods raise EngineError if the device fails, which may be due to an earlier operation.
    """

    device: Device
    stream: int  # its address; 0 on the CPU

    def zeros(self, shape: Sequence[int], dtype: DTypeLike) -> DeviceArray:
        """Allocate an array; it is zeroed before the next operation. Raises DeviceMemoryError: there is no room."""

    def staging(self, shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        """Allocate a page-locked, zeroed host array that the device accesses at full speed, without waiting.

        It lives as long as the array, and until the memory is closed.

        Raises:
            DeviceMemoryError: there is no room.
        """

    def upload(self, host: NDArray[Any], target: DeviceArray) -> None:
        """Copy to the device.

        Args:
            host: C-contiguous. An array from `staging` must not change until the copy is done; any other array may
                change at once.
            target: of the same shape and type.

        Raises:
            ValueError: shape, type or device differ.
        """

    def download(self, source: DeviceArray, host: NDArray[Any]) -> None:
        """Copy from the device.

        Args:
            host: C-contiguous, of the same shape and type. Filled once a later mark is passed.

        Raises:
            ValueError: shape, type or device differ.
        """

    def copy(self, source: CacheRegion, target: CacheRegion) -> None:
        """Copy on the device. Raises ValueError: extents, types or devices differ, or the two overlap."""

    def copy_rows(self, array: DeviceArray, copies: Sequence[RowCopy]) -> None:
        """Copy positions of rows of a cache `[N, B, H, T, D]` to other rows, in any order.

        Args:
            copies: no row is a target and a source, or twice a target.

        Raises:
            ValueError: a row or position is out of bounds.
        """
        for source, target, *part in copies:
            rows = (slice(row, row + 1) for row in (source, target))
            self.copy(*(CacheRegion(array, row, slice(*part)) for row in rows))

    def fill(self, target: DeviceArray, value: int) -> None:
        """Set all bytes to a value of 0 to 255."""

    def mark(self) -> StreamMark:
        """Return a mark after all operations so far."""

    def wait(self) -> None:
        """Wait until all operations are done."""

    def close(self) -> None:
        """Wait, and free everything. Idempotent. No array of this memory may be used afterwards."""


def check_transfer(host: NDArray[Any], array: DeviceArray, device: Device) -> None:
    """Check that an array can be copied between host and device.

    Raises:
        ValueError: shape, type or device differ, or the host array is not contiguous.
    """
    if host.shape != array.shape or host.dtype != array.dtype:
        raise ValueError(f"the host's {host.dtype} {host.shape} does not fit the device's {array.dtype} {array.shape}")
    if not host.flags.c_contiguous:
        raise ValueError(f"the host's array of shape {host.shape} is not C-contiguous")
    if array.device != device:
        raise ValueError(f"an array on {array.device} is copied with the memory of {device}")
