"""A CUDA runtime over the host's memory, in the place of `cuda.bindings.runtime`.

Streams are lists of work that is done when somebody waits: what is read from page-locked memory is read then. Every access is
checked to lie within what was allocated.
"""

# ruff: noqa: N801, N802, N815 (names are CUDA's)

import ctypes
import threading
from collections import defaultdict
from collections.abc import Callable
from enum import Enum, IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOTAL = 1 << 30  # bytes of each GPU


class cudaError_t(IntEnum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorInvalidPitchValue = 12
    cudaErrorInsufficientDriver = 35
    cudaErrorNoDevice = 100
    cudaErrorInvalidDevice = 101
    cudaErrorInvalidResourceHandle = 400
    cudaErrorNotReady = 600
    cudaErrorLaunchFailure = 719


class cudaMemcpyKind(Enum):
    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2
    cudaMemcpyDeviceToDevice = 3


class Pitched:
    def __init__(self) -> None:
        self.ptr = self.pitch = self.xsize = self.ysize = 0


class Extent:
    def __init__(self) -> None:
        self.width = self.height = self.depth = 0


class cudaMemcpy3DParms:
    def __init__(self) -> None:
        self.srcPtr, self.dstPtr, self.extent = Pitched(), Pitched(), Extent()
        self.kind: cudaMemcpyKind | None = None


class Handle:
    """A stream or an event."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.work: list[Callable[[], None]] = []  # of a stream
        self.until: tuple[Handle, int] | None = None  # of an event: what it waits for
        self.done = 0  # of a stream's work
        self.alive = True

    def __int__(self) -> int:
        return id(self)


class Properties:
    def __init__(self, index: int) -> None:
        self.name = f"Fake GPU {index}".encode()
        self.totalGlobalMem = TOTAL


class FakeCuda:
    """Functions return as the bindings do: error first, which their implementations leave out unless it is all they return."""

    cudaError_t, cudaMemcpyKind = cudaError_t, cudaMemcpyKind
    cudaMemcpy3DParms = cudaMemcpy3DParms
    cudaStreamNonBlocking, cudaEventDisableTiming, cudaHostAllocDefault = 1, 2, 0

    def __init__(self, gpus: int = 1, free: int = TOTAL) -> None:
        self.gpus = gpus
        self.free = free
        self.calls: dict[str, int] = defaultdict(int)
        self.fails: dict[str, cudaError_t] = {}  # by function
        self.forgotten = 0  # errors that were left for others to find
        self.devices: set[int] = set()  # where anything was made
        self.device: NDArrays = {}  # by address
        self.locked: NDArrays = {}
        self._current = threading.local()

    # Every function is counted and may be made to fail.
    def __getattr__(self, name: str) -> Callable[..., Any]:
        implementation = getattr(type(self), f"_{name}", None)
        if implementation is None:
            raise AttributeError(name)

        def function(*arguments: Any) -> tuple[Any, ...]:
            self.calls[name] += 1
            result = self.fails.get(name) or implementation(self, *arguments)
            if isinstance(result, cudaError_t):
                self.forgotten += 1
                return result, *[None] * RESULTS.get(name, 0)
            values = () if result is None else result if isinstance(result, tuple) else (result,)
            return cudaError_t.cudaSuccess, *values

        return function

    def _cudaGetLastError(self) -> None:
        self.forgotten = 0

    def _cudaGetErrorString(self, error: cudaError_t) -> Any:
        return f"words for {int(error)}".encode()

    def _cudaGetDeviceCount(self) -> Any:
        return self.gpus or cudaError_t.cudaErrorNoDevice

    def _cudaGetDeviceProperties(self, index: int) -> Any:
        return Properties(index)

    def _cudaSetDevice(self, index: int) -> cudaError_t | None:
        if index >= self.gpus:
            return cudaError_t.cudaErrorInvalidDevice
        self._current.index = index
        return None

    def _cudaMemGetInfo(self) -> Any:
        return self.free, TOTAL

    def _cudaMalloc(self, size: int) -> Any:
        return self._allocate(self.device, size)

    def _cudaHostAlloc(self, size: int, flags: int) -> Any:
        assert flags == self.cudaHostAllocDefault
        return self._allocate(self.locked, size)

    def _allocate(self, held: "NDArrays", size: int) -> Any:
        if size > self.free:
            return cudaError_t.cudaErrorMemoryAllocation
        self.free -= size
        self.devices.add(self._current.index)
        memory = np.full(size, 0xCD, np.uint8)  # never zeros
        held[memory.ctypes.data] = memory
        return memory.ctypes.data

    def _cudaFree(self, address: int) -> None:
        self.free += self.device.pop(address).nbytes

    def _cudaFreeHost(self, address: int) -> None:
        self.free += self.locked.pop(address).nbytes

    def _cudaStreamCreateWithFlags(self, flags: int) -> Any:
        assert flags == self.cudaStreamNonBlocking
        self.devices.add(self._current.index)
        return Handle(self._current.index)

    def _cudaStreamDestroy(self, stream: Handle) -> None:
        assert stream.alive
        stream.alive = False

    def _cudaEventCreateWithFlags(self, flags: int) -> Any:
        assert flags == self.cudaEventDisableTiming
        self.devices.add(self._current.index)
        return Handle(self._current.index)

    def _cudaEventRecord(self, event: Handle, stream: Handle) -> cudaError_t | None:
        if event.device != stream.device or not event.alive:
            return cudaError_t.cudaErrorInvalidResourceHandle
        event.until = (stream, stream.done + len(stream.work))
        return None

    def _cudaEventSynchronize(self, event: Handle) -> None:
        assert event.alive
        if event.until:
            _do(*event.until)

    def _cudaEventDestroy(self, event: Handle) -> None:
        assert event.alive
        event.alive = False

    def _cudaStreamSynchronize(self, stream: Handle) -> None:
        _do(stream, stream.done + len(stream.work))

    def _cudaMemsetAsync(self, address: int, value: int, size: int, stream: Handle) -> None:
        assert 0 <= value < 256
        target = self._view(self.device, address, size)
        stream.work.append(lambda: target.fill(value))

    def _cudaMemcpyAsync(self, target: int, source: int, size: int, kind: cudaMemcpyKind, stream: Handle) -> None:
        up = kind is cudaMemcpyKind.cudaMemcpyHostToDevice
        device, host = (target, source) if up else (source, target)
        on_device = self._view(self.device, device, size)
        locked = any(start <= host < start + memory.nbytes for start, memory in self.locked.items())
        on_host = self._view(self.locked, host, size) if locked else _memory(host, size)
        if up:
            values = on_host if locked else on_host.copy()  # what is not page-locked is read before the call returns
            stream.work.append(lambda: np.copyto(on_device, values))
        else:
            stream.work.append(lambda: np.copyto(on_host, on_device))
        if not locked:
            self._cudaStreamSynchronize(stream)

    def _cudaMemcpy3DAsync(self, box: cudaMemcpy3DParms, stream: Handle) -> cudaError_t | None:
        assert box.kind is cudaMemcpyKind.cudaMemcpyDeviceToDevice
        extent = box.extent
        for end in (box.srcPtr, box.dstPtr):
            if extent.width > end.pitch:
                return cudaError_t.cudaErrorInvalidPitchValue
            if extent.height > end.ysize or extent.width > end.xsize:
                return cudaError_t.cudaErrorInvalidValue
        sources, targets = self._lines(box.srcPtr, extent), self._lines(box.dstPtr, extent)

        def copy() -> None:
            values = [line.copy() for line in sources]
            for target, line in zip(targets, values, strict=True):
                target[...] = line

        stream.work.append(copy)
        return None

    def _lines(self, end: Pitched, extent: Extent) -> list[NDArray[Any]]:
        """Each contiguous piece."""
        return [
            self._view(self.device, end.ptr + (z * end.ysize + y) * end.pitch, extent.width)
            for z in range(extent.depth)
            for y in range(extent.height)
        ]

    def _view(self, held: "NDArrays", address: int, size: int) -> NDArray[Any]:
        for start, memory in held.items():
            if start <= address and address + size <= start + memory.nbytes:
                return memory[address - start : address - start + size]
        raise AssertionError(f"{size} bytes at {address} were not allocated")


NDArrays = dict[int, NDArray[Any]]
RESULTS = {  # beside the error, of those that have any
    "cudaMalloc": 1,
    "cudaHostAlloc": 1,
    "cudaStreamCreateWithFlags": 1,
    "cudaEventCreateWithFlags": 1,
    "cudaGetDeviceCount": 1,
    "cudaGetDeviceProperties": 1,
    "cudaMemGetInfo": 2,
}


def _do(stream: Handle, count: int) -> None:
    """Execute the first operations of a stream."""
    while stream.done < count:
        stream.work.pop(0)()
        stream.done += 1


def _memory(address: int, size: int) -> NDArray[Any]:
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)
