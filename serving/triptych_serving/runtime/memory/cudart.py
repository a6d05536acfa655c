"""The CUDA runtime and the GPUs it finds; the only module that imports its bindings."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from triptych.extras import install_command
from triptych_serving.errors import DeviceError, DeviceMemoryError, EngineError
from triptych_serving.runtime.cuda_graph_lock import CUDA_GRAPH_LOCK
from triptych_serving.runtime.device import Device

INSTALL = f"pip uninstall onnxruntime; {install_command('cuda')}"  # the two runtimes are one module
NO_MEMORY = "cudaErrorMemoryAllocation"
NO_DRIVER = "cudaErrorInsufficientDriver"  # its message mentions an old driver even if there is none, as in many containers
DRIVER = "no NVIDIA driver is visible here, or it is older than CUDA 13 needs"
NO_DEVICE = (
    "cudaErrorNoDevice",
    "cudaErrorInvalidDevice",
    "cudaErrorInitializationError",
    "cudaErrorSystemDriverMismatch",
)


def load_runtime() -> Any:
    """Import the bindings of the runtime. Raises DeviceError: they are not installed."""
    return load_bindings()[0]


@cache
def load_bindings() -> tuple[Any, Any, Any]:
    """Import the bindings of the runtime, the driver and the compiler. Raises DeviceError: they are not installed."""
    try:
        from cuda.bindings import driver, nvrtc, runtime  # noqa: PLC0415
    except (ImportError, RuntimeError) as error:  # RuntimeError: a library that they load is missing
        raise DeviceError(f"the CUDA bindings cannot be imported ({error}): {INSTALL}") from error
    return runtime, driver, nvrtc


class CudaRuntime:
    """Calls functions of `cuda.bindings.runtime`, which return their error first, and raises their errors."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime

    def call(self, name: str, *arguments: object) -> Any:
        """Call a function; return nothing, a value, or a tuple of values.

        Raises:
            DeviceError: there is no GPU, or no driver that this runtime can use.
            DeviceMemoryError: no memory is left.
            EngineError: any other error, with CUDA's own name and message.
        """
        error, *values = getattr(self.runtime, name)(*arguments)
        if error:
            raise self._failure(name, error)
        return values[0] if len(values) == 1 else tuple(values)

    def _failure(self, name: str, error: Any) -> Exception:
        self.runtime.cudaGetLastError()  # otherwise the next call that checks for an error finds it
        _, words = self.runtime.cudaGetErrorString(error)
        message = f"{name}: {words.decode()} ({error.name})"
        if error.name == NO_DRIVER:
            return DeviceError(f"{DRIVER}; {message}")
        if error.name in NO_DEVICE:
            return DeviceError(message)
        return DeviceMemoryError(message) if error.name == NO_MEMORY else EngineError(message)


@dataclass(frozen=True)
class Gpu:
    """One GPU that this process can use."""

    device: Device
    name: str
    total_bytes: int


@dataclass(frozen=True)
class GpuMemory:
    """Memory of one GPU, shared by all processes."""

    free_bytes: int
    total_bytes: int


def find_gpus(runtime: Any = None) -> tuple[Gpu, ...]:
    """List all GPUs in the driver's order; nothing is allocated on them.

    Raises:
        DeviceError: no bindings, no driver, or no GPU.
        EngineError: the driver failed.
    """
    cuda = CudaRuntime(runtime or load_runtime())
    with CUDA_GRAPH_LOCK.running():
        found = [cuda.call("cudaGetDeviceProperties", index) for index in range(cuda.call("cudaGetDeviceCount"))]
    return tuple(Gpu(Device("cuda", index), of.name.decode(), of.totalGlobalMem) for index, of in enumerate(found))


def gpu_memory(device: Device, runtime: Any = None) -> GpuMemory:
    """Return the free memory; the first call allocates some hundred MiB for CUDA's own context.

    Raises:
        DeviceError: there is no such GPU.
        EngineError: the driver failed.
    """
    cuda = CudaRuntime(runtime or load_runtime())
    with CUDA_GRAPH_LOCK.running():
        cuda.call("cudaSetDevice", device.index)
        free, total = cuda.call("cudaMemGetInfo")
    return GpuMemory(free, total)
