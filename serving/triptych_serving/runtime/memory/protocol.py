"""What every device's memory offers."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory.array import CacheRegion, DeviceArray


class StreamMark(Protocol):
    """A place in a stream's order of work."""

    def wait(self) -> None:
        """Return when all work before it is done.

        Raises:
            EngineError: the device failed.
        """

    def done(self) -> bool:
        """All work before it is done; never waits.

        Raises:
            EngineError: the device failed.
        """


class Memory(Protocol):
    """One stream of one device, and what is allocated on it.

    What is asked for is done in order, together with the runs of sessions over this memory, and not yet done when a method
    returns. Of one thread at a time; only marks may be waited for in others. On the CPU everything is done at once.

    All methods raise EngineError when the device fails, which may be because of something that was asked for earlier.
    """

    @property
    def device(self) -> Device:
        """Whose memory it is."""

    @property
    def stream(self) -> int:
        """Its address; 0 on the CPU."""

    def zeros(self, shape: Sequence[int], dtype: DTypeLike) -> DeviceArray:
        """Allocate; zeroed when what is asked for next begins.

        Raises:
            DeviceMemoryError: there is no room.
        """

    def staging(self, shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        """Zeros of the host that the device reads and writes at its full speed, without waiting: page-locked.

        They live as long as the array does, and until the memory is closed.

        Raises:
            DeviceMemoryError: there is no room.
        """

    def upload(self, host: NDArray[Any], target: DeviceArray) -> None:
        """Copy to the device.

        Args:
            host: C-contiguous. What came from `staging` must stay as it is until the copy is done; any other array may be
                changed at once.
            target: of the same shape and type.

        Raises:
            ValueError: the two do not fit.
        """

    def download(self, source: DeviceArray, host: NDArray[Any]) -> None:
        """Copy from the device.

        Args:
            source: any.
            host: C-contiguous, of the same shape and type. Filled when a later mark is passed.

        Raises:
            ValueError: the two do not fit.
        """

    def copy(self, source: CacheRegion, target: CacheRegion) -> None:
        """Copy on the device.

        Raises:
            ValueError: extents, types or devices differ, or the two overlap.
        """

    def fill(self, target: DeviceArray, value: int) -> None:
        """Set all bytes.

        Args:
            target: any.
            value: 0 to 255.
        """

    def mark(self) -> StreamMark:
        """The place after all that was asked for so far."""

    def wait(self) -> None:
        """Return when all that was asked for is done."""

    def close(self) -> None:
        """Wait, and free everything; again does nothing. No array of this memory may be used after it."""


def check_transfer(host: NDArray[Any], array: DeviceArray, device: Device) -> None:
    """Refuse what cannot be copied between host and device.

    Raises:
        ValueError: says why.
    """
    if host.shape != array.shape or host.dtype != array.dtype:
        raise ValueError(f"the host's {host.dtype} {host.shape} does not fit the device's {array.dtype} {array.shape}")
    if not host.flags.c_contiguous:
        raise ValueError(f"the host's array of shape {host.shape} is not C-contiguous")
    if array.device != device:
        raise ValueError(f"an array on {array.device} is copied with the memory of {device}")


def dtype_of(dtype: DTypeLike) -> np.dtype[Any]:
    """As numpy's own, native byte order."""
    return np.dtype(dtype)
