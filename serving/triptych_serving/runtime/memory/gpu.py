"""The GPUs that this process sees."""

from dataclasses import dataclass
from typing import Any

from triptych_serving.runtime.cuda_graph_lock import GATE
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory.cudart import Cuda, load_runtime


@dataclass(frozen=True)
class Gpu:
    """One GPU."""

    device: Device
    name: str
    total_bytes: int


@dataclass(frozen=True)
class GpuMemory:
    """Of one GPU, all processes together."""

    free_bytes: int
    total_bytes: int


def find_gpus(runtime: Any = None) -> tuple[Gpu, ...]:
    """All of them, in the driver's order; nothing is allocated on them.

    Raises:
        DeviceError: no bindings, no driver, or no GPU.
        EngineError: the driver failed.
    """
    cuda = Cuda(runtime or load_runtime())
    with GATE.running():
        found = [cuda.call("cudaGetDeviceProperties", index) for index in range(cuda.call("cudaGetDeviceCount"))]
    return tuple(Gpu(Device("cuda", index), of.name.decode(), of.totalGlobalMem) for index, of in enumerate(found))


def gpu_memory(device: Device, runtime: Any = None) -> GpuMemory:
    """How much is free now; the first look takes some hundred MiB for what CUDA keeps for this process.

    Raises:
        DeviceError: there is no such GPU.
        EngineError: the driver failed.
    """
    cuda = Cuda(runtime or load_runtime())
    with GATE.running():
        cuda.call("cudaSetDevice", device.index)
        free, total = cuda.call("cudaMemGetInfo")
    return GpuMemory(free, total)
