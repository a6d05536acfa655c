"""The memory of a GPU, and one stream of work on it."""

import ctypes
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from triptych_serving.errors import DeviceMemoryError, ServingError
from triptych_serving.runtime.cuda_graph_lock import CUDA_GRAPH_LOCK
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory.array import CacheRegion, DeviceArray, check_copy, check_rows
from triptych_serving.runtime.memory.cudart import CudaRuntime, load_runtime
from triptych_serving.runtime.memory.protocol import Memory, RowCopy, StreamMark, check_transfer
from triptych_serving.runtime.memory.row_copies import RowCopyKernel, fits, row_copy_kernel
from triptych_serving.runtime.memory.sizes import show_bytes

ALIGNMENT = 64  # bytes, of the processor's cache


class UploadRing:
    """A ring of page-locked memory for small uploads. Used by one thread, that of its memory.

    Two halves take turns: before one is overwritten, its copies, which were enqueued half a round ago, are waited for.

    Args:
        memory: allocates the ring and copies from it.
        size: bytes; the largest upload is half of it.
    """

    def __init__(self, memory: Memory, size: int) -> None:
        self._memory = memory
        self._bytes: NDArray[Any] = memory.staging((size,), np.uint8)
        self.largest = size // 2
        self._half = 0  # being written
        self._used = 0  # bytes used of this half
        self._marks: list[StreamMark | None] = [None, None]  # after the last copy out of each half

    def take(self, host: NDArray[Any]) -> NDArray[Any]:
        """Return a copy of the array that stays unchanged until the device has read it, if the upload is enqueued at once."""
        if self._used + host.nbytes > self.largest:
            self._turn()
        start = self._half * self.largest + self._used
        self._used += -(-host.nbytes // ALIGNMENT) * ALIGNMENT
        held = np.ndarray(host.shape, host.dtype, buffer=self._bytes.data, offset=start)
        held[...] = host
        return held

    def _turn(self) -> None:
        self._marks[self._half] = self._memory.mark()
        self._half = 1 - self._half
        self._used = 0
        if (mark := self._marks[self._half]) is not None:
            mark.wait()


RING_BYTES = 1 << 20
MOST_COPIES = 4_096  # of rows with one kernel

MakeKernel = Callable[[int], RowCopyKernel | None]


class CudaMark(StreamMark):
    """A CUDA event; reused after the mark is destroyed."""

    def __init__(self, memory: "CudaMemory", event: Any) -> None:
        self._memory = memory
        self._event = event
        self._passed = False

    def wait(self) -> None:
        if not self._passed and not self._memory.closed:
            with CUDA_GRAPH_LOCK.running():
                self._memory.cuda.call("cudaEventSynchronize", self._event)
        self._passed = True

    def __del__(self) -> None:
        self._memory.spare.append(self._event)


class CudaMemory(Memory):
    """The memory of a GPU. Its calls keep apart from CUDA graphs that other threads capture.

    Copies between the device and ordinary host arrays, which are not page-locked, wait for the stream, except uploads of up to
    half a MiB.

    Args:
        runtime: `cuda.bindings.runtime`, or a replacement.
        kernel: returns the kernel that copies rows on a GPU.

    Raises:
        DeviceError: there is no such GPU, or no bindings.
    """

    def __init__(self, device: Device, runtime: Any = None, kernel: MakeKernel = row_copy_kernel) -> None:
        self._runtime = runtime or load_runtime()
        self._make_kernel = kernel
        self._copies: DeviceArray | None = None  # `[MOST_COPIES, 4]`, made when it is first needed
        self.cuda = CudaRuntime(self._runtime)
        self.device = device
        self._arrays: list[int] = []  # addresses, of the device
        self._locked: list[int] = []  # of the host
        self._events: list[Any] = []
        self.spare: deque[Any] = deque()  # events that no mark holds
        self._box = self._runtime.cudaMemcpy3DParms()  # reused for each copy
        self._box.kind = self._runtime.cudaMemcpyKind.cudaMemcpyDeviceToDevice
        self.closed = False
        with CUDA_GRAPH_LOCK.running():
            self._select()
            self._stream = self.cuda.call("cudaStreamCreateWithFlags", self._runtime.cudaStreamNonBlocking)
        self.stream = int(self._stream)
        try:
            self._ring = UploadRing(self, RING_BYTES)
        except BaseException:
            self.close()
            raise

    def zeros(self, shape: Sequence[int], dtype: DTypeLike) -> DeviceArray:
        kind, shape = np.dtype(dtype), tuple(shape)
        size = math.prod(shape) * kind.itemsize
        with CUDA_GRAPH_LOCK.running():
            address = int(self._allocate("cudaMalloc", size, f"{kind} {list(shape)} on {self.device}"))
            self._arrays.append(address)
            array = DeviceArray(address, shape, kind, self.device, self)
            self.fill(array, 0)
        return array

    def staging(self, shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        kind, shape = np.dtype(dtype), tuple(shape)
        size = math.prod(shape) * kind.itemsize
        with CUDA_GRAPH_LOCK.running():
            what = f"page-locked {kind} {list(shape)}"
            address = int(self._allocate("cudaHostAlloc", size, what, self._runtime.cudaHostAllocDefault))
        self._locked.append(address)
        held = (ctypes.c_uint8 * max(1, size)).from_address(address)
        array: NDArray[Any] = np.ndarray(shape, kind, buffer=memoryview(held))
        array[...] = 0
        return array

    def upload(self, host: NDArray[Any], target: DeviceArray) -> None:
        check_transfer(host, target, self.device)
        if host.nbytes <= self._ring.largest:
            host = self._ring.take(host)
        self._copy(target.address, host.ctypes.data, host.nbytes, "cudaMemcpyHostToDevice")

    def download(self, source: DeviceArray, host: NDArray[Any]) -> None:
        check_transfer(host, source, self.device)
        self._copy(host.ctypes.data, source.address, host.nbytes, "cudaMemcpyDeviceToHost")

    def copy(self, source: CacheRegion, target: CacheRegion) -> None:
        """Copy on the device with one call, whatever the regions.

        Heads and rows have the same stride, the length of one head's positions in a row, so they form one dimension of
        the runtime's three-dimensional copy; the others are the bytes of the positions, and N.
        """
        check_copy(source, target)
        n, rows, heads, positions, width = source.extent
        if not math.prod(source.extent):
            return
        box = self._box
        self._point(box.srcPtr, source)
        self._point(box.dstPtr, target)
        extent = box.extent
        extent.width = positions * width * source.array.dtype.itemsize
        extent.height = rows * heads
        extent.depth = n
        with CUDA_GRAPH_LOCK.running():
            self._select()
            self.cuda.call("cudaMemcpy3DAsync", box, self._stream)

    def copy_rows(self, array: DeviceArray, copies: Sequence[RowCopy]) -> None:
        with CUDA_GRAPH_LOCK.running():
            self._select()
            kernel = self._make_kernel(self.device.index) if fits(array) else None
            if kernel is None:
                super().copy_rows(array, copies)
                return
            if self._copies is None:
                self._copies = self.zeros((MOST_COPIES, len(copies[0])), np.int32)
            for first in range(0, len(copies), MOST_COPIES):
                part = np.array(copies[first : first + MOST_COPIES], np.int32)
                check_rows(array, part)
                self.upload(part, self._copies.first(len(part)))
                kernel.launch(array, self._copies.first(len(part)), self.stream)

    def fill(self, target: DeviceArray, value: int) -> None:
        if target.nbytes:
            with CUDA_GRAPH_LOCK.running():
                self._select()
                self.cuda.call("cudaMemsetAsync", target.address, value, target.nbytes, self._stream)

    def mark(self) -> CudaMark:
        with CUDA_GRAPH_LOCK.running():
            self._select()
            event = self.spare.popleft() if self.spare else self._new_event()
            mark = CudaMark(self, event)
            self.cuda.call("cudaEventRecord", event, self._stream)
        return mark

    def wait(self) -> None:
        with CUDA_GRAPH_LOCK.running():
            self.cuda.call("cudaStreamSynchronize", self._stream)

    def close(self) -> None:
        """Free everything, even after the device failed."""
        if self.closed:
            return
        self.closed = True
        with CUDA_GRAPH_LOCK.running():
            for name, freed in (
                ("cudaSetDevice", [self.device.index]),  # see _select; it may report an earlier failure
                ("cudaStreamSynchronize", [self._stream]),
                ("cudaEventDestroy", self._events),
                ("cudaFree", self._arrays),
                ("cudaFreeHost", self._locked),
                ("cudaStreamDestroy", [self._stream]),
            ):
                for each in freed:
                    self._release(name, each)

    def _release(self, name: str, what: object) -> None:
        with suppress(ServingError):  # a failed device frees its memory when the process ends; its users got the error
            self.cuda.call(name, what)

    def _select(self) -> None:
        """Select this device for the thread: the runtime keeps one for each thread, and sessions on other devices change it."""
        self.cuda.call("cudaSetDevice", self.device.index)

    def _allocate(self, name: str, size: int, what: str, *flags: object) -> Any:
        self._select()
        try:
            return self.cuda.call(name, max(1, size), *flags)
        except DeviceMemoryError as error:
            free, total = self.cuda.call("cudaMemGetInfo")
            raise DeviceMemoryError(
                f"no memory for {what}, {show_bytes(size)}: {show_bytes(free)} of {show_bytes(total)} are free; {error}"
            ) from error

    def _new_event(self) -> Any:
        event = self.cuda.call("cudaEventCreateWithFlags", self._runtime.cudaEventDisableTiming)
        self._events.append(event)
        return event

    def _copy(self, target: int, source: int, size: int, kind: str) -> None:
        if size:
            with CUDA_GRAPH_LOCK.running():
                self._select()
                which = getattr(self._runtime.cudaMemcpyKind, kind)
                self.cuda.call("cudaMemcpyAsync", target, source, size, which, self._stream)

    @staticmethod
    def _point(pointer: Any, box: CacheRegion) -> None:
        """Fill in the start of a region and the strides of its array."""
        array = box.array
        _, rows, heads, positions, width = array.shape
        cell = width * array.dtype.itemsize
        pitch = positions * cell
        pointer.ptr = array.address + box.rows.start * heads * pitch + box.positions.start * cell
        pointer.pitch = pitch
        pointer.xsize = pitch
        pointer.ysize = rows * heads
