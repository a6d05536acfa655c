"""Copies of many rows within a cache with one kernel, which NVIDIA's run-time compiler makes when it is first needed."""

import ctypes
import logging
from functools import cache
from typing import Any

from triptych_serving.errors import DeviceError, EngineError
from triptych_serving.runtime.memory.array import DeviceArray
from triptych_serving.runtime.memory.cudart import load_bindings

logger = logging.getLogger(__name__)

PIECE = 16  # bytes that a thread copies at once
THREADS = 128  # of a block, which copies one head of one row
NAME = b"copy_rows"
SOURCE = b"""
extern "C" __global__ void copy_rows(uint4* array, const int4* copies, int rows, int positions, int width) {
  const int4 copy = copies[blockIdx.x];  // source, target, first position, position after the last
  const size_t length = (size_t)positions * width, first = (size_t)blockIdx.z * rows;
  const uint4* source = array + ((first + copy.x) * gridDim.y + blockIdx.y) * length;
  uint4* target = array + ((first + copy.y) * gridDim.y + blockIdx.y) * length;
  for (int at = copy.z * width + threadIdx.x; at < copy.w * width; at += blockDim.x) target[at] = source[at];
}
"""
TYPES = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int)


class RowCopyKernel:
    """The kernel on one GPU, whose context is current.

    Raises:
        EngineError: the compiler or the driver failed.
        DeviceError: the bindings are missing.
        RuntimeError: the compiler's library is missing.
    """

    def __init__(self) -> None:
        _, driver, _ = load_bindings()
        self._driver = driver
        device, of = _checked(driver.cuCtxGetDevice()), driver.CUdevice_attribute
        versions = of.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, of.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
        code = compile_kernel(*(_checked(driver.cuDeviceGetAttribute(each, device)) for each in versions))
        self._module = _checked(driver.cuModuleLoadData(code))
        self._function = _checked(driver.cuModuleGetFunction(self._module, NAME))

    def launch(self, array: DeviceArray, copies: DeviceArray, stream: int) -> None:
        """Enqueue copies `[count, 4]` int32 within a cache `[N, B, H, T, D]`. Raises EngineError: the device failed."""
        n, rows, heads, positions, width = array.shape
        pieces = width * array.dtype.itemsize // PIECE
        arguments = ((array.address, copies.address, rows, positions, pieces), TYPES)
        grid = (copies.shape[0], heads, n)
        _checked(self._driver.cuLaunchKernel(self._function, *grid, THREADS, 1, 1, 0, stream, arguments, 0))


def compile_kernel(major: int, minor: int) -> bytes:
    """Compile the kernel for GPUs of a compute capability; errors as for RowCopyKernel."""
    _, _, nvrtc = load_bindings()
    program = _checked(nvrtc.nvrtcCreateProgram(SOURCE, NAME, 0, [], []))
    _checked(nvrtc.nvrtcCompileProgram(program, 1, [f"--gpu-architecture=sm_{major}{minor}".encode()]))
    code: bytes = b" " * _checked(nvrtc.nvrtcGetCUBINSize(program))
    _checked(nvrtc.nvrtcGetCUBIN(program, code))
    _checked(nvrtc.nvrtcDestroyProgram(program))
    return code


def fits(array: DeviceArray) -> bool:
    """Tell whether the kernel can copy this cache's positions: their sizes are multiples of what a thread copies."""
    return array.shape[-1] * array.dtype.itemsize % PIECE == 0


@cache
def row_copy_kernel(index: int) -> RowCopyKernel | None:
    """Return the kernel of a GPU, which is the current one; None, after a log line, if it cannot be made."""
    try:
        return RowCopyKernel()
    except (EngineError, DeviceError, RuntimeError) as error:
        logger.warning("rows are copied one by one on cuda:%d, which slows beams: the kernel cannot be made: %s", index, error)
        return None


def _checked(results: tuple[Any, ...]) -> Any:
    """Return what a function of the bindings returned after its error. Raises EngineError: there is one."""
    error, *values = results
    if error:
        raise EngineError(f"{error.name}")
    return values[0] if values else None
