"""The CPU's memory, behind the same interface: everything is done at once."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.memory.array import CacheRegion, DeviceArray, check_copy
from triptych_serving.runtime.memory.protocol import check_transfer


class CompletedMark:
    """A mark that everything has passed."""

    def wait(self) -> None:
        """Return at once."""

    def done(self) -> bool:
        """Always."""
        return True


PASSED = CompletedMark()


class HostMemory:
    """A Memory of the CPU. Pages are touched only as they are written."""

    device: Device = CPU
    stream = 0

    def zeros(self, shape: Sequence[int], dtype: DTypeLike) -> DeviceArray:
        """Allocate; the array that it returns keeps it alive."""
        return device_array(np.zeros(shape, dtype))

    def staging(self, shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        """An ordinary array."""
        return np.zeros(shape, dtype)

    def upload(self, host: NDArray[Any], target: DeviceArray) -> None:
        """Copy."""
        check_transfer(host, target, CPU)
        host_view(target)[...] = host

    def download(self, source: DeviceArray, host: NDArray[Any]) -> None:
        """Copy."""
        check_transfer(host, source, CPU)
        host[...] = host_view(source)

    def copy(self, source: CacheRegion, target: CacheRegion) -> None:
        """Copy."""
        check_copy(source, target)
        _box_view(target)[...] = _box_view(source)

    def fill(self, target: DeviceArray, value: int) -> None:
        """Set all bytes."""
        host_view(target).reshape(-1).view(np.uint8)[...] = value

    def mark(self) -> CompletedMark:
        """Everything is done already."""
        return PASSED

    def wait(self) -> None:
        """Everything is done already."""

    def close(self) -> None:
        """Arrays free themselves when they are gone."""


def device_array(host: NDArray[Any]) -> DeviceArray:
    """A host's array as one of the device `cpu`; it keeps the memory alive.

    Raises:
        ValueError: it is not C-contiguous.
    """
    if not host.flags.c_contiguous:
        raise ValueError(f"the host's array of shape {host.shape} is not C-contiguous")
    return DeviceArray(host.ctypes.data, host.shape, host.dtype, CPU, host)


def host_view(array: DeviceArray) -> NDArray[Any]:
    """What an array of the device `cpu` shows; to write to it is to write there.

    Raises:
        ValueError: it is of another device.
    """
    owner = array.owner
    if not isinstance(owner, np.ndarray):
        raise ValueError(f"an array on {array.device} cannot be seen from the host")
    if not math.prod(array.shape):
        return np.zeros(array.shape, array.dtype)
    offset = array.address - owner.ctypes.data
    return np.ndarray(array.shape, array.dtype, buffer=owner.data, offset=offset)


def _box_view(box: CacheRegion) -> NDArray[Any]:
    return host_view(box.array)[:, box.rows, :, box.positions]
