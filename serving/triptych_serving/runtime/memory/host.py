"""The CPU's memory, behind the same interface: all operations complete at once."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.memory.array import CacheRegion, DeviceArray, check_copy
from triptych_serving.runtime.memory.protocol import Memory, StreamMark, check_transfer


class CompletedMark(StreamMark):
    """A mark whose work is already done."""

    def wait(self) -> None:
        return


PASSED = CompletedMark()


class HostMemory(Memory):
    """The memory of the CPU. Pages are touched only when they are written."""

    device: Device = CPU
    stream = 0

    def zeros(self, shape: Sequence[int], dtype: DTypeLike) -> DeviceArray:
        return device_array(np.zeros(shape, dtype))

    def staging(self, shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        return np.zeros(shape, dtype)

    def upload(self, host: NDArray[Any], target: DeviceArray) -> None:
        check_transfer(host, target, CPU)
        host_view(target)[...] = host

    def download(self, source: DeviceArray, host: NDArray[Any]) -> None:
        check_transfer(host, source, CPU)
        host[...] = host_view(source)

    def copy(self, source: CacheRegion, target: CacheRegion) -> None:
        check_copy(source, target)
        _box_view(target)[...] = _box_view(source)

    def fill(self, target: DeviceArray, value: int) -> None:
        host_view(target).reshape(-1).view(np.uint8)[...] = value

    def mark(self) -> CompletedMark:
        return PASSED

    def wait(self) -> None:
        return

    def close(self) -> None:
        return  # arrays free themselves


def device_array(host: NDArray[Any]) -> DeviceArray:
    """Return a host array as an array of the device `cpu`, which keeps its memory alive.

    Raises:
        ValueError: the array is not C-contiguous.
    """
    if not host.flags.c_contiguous:
        raise ValueError(f"the host's array of shape {host.shape} is not C-contiguous")
    return DeviceArray(host.ctypes.data, host.shape, host.dtype, CPU, host)


def host_view(array: DeviceArray) -> NDArray[Any]:
    """Return a numpy view of an array of the device `cpu`; writes go to the same memory.

    Raises:
        ValueError: the array is on another device.
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
