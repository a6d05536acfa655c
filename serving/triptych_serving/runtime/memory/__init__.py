"""Device memory: arrays by address, and one ordered stream of work per device.

Imported by `runtime.session` and the engines. Knows neither ONNX Runtime nor models.
"""

from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory.array import CacheRegion, DeviceArray
from triptych_serving.runtime.memory.cuda import CudaMemory
from triptych_serving.runtime.memory.cudart import INSTALL
from triptych_serving.runtime.memory.host import HostMemory, device_array, host_view
from triptych_serving.runtime.memory.protocol import Memory, RowCopy, StreamMark

__all__ = [
    "INSTALL",
    "CacheRegion",
    "DeviceArray",
    "HostMemory",
    "Memory",
    "RowCopy",
    "StreamMark",
    "device_array",
    "host_view",
    "open_memory",
]


def open_memory(device: Device) -> Memory:
    """Open a new stream on a device.

    Raises:
        DeviceError: there is no such device, or the CUDA bindings are not installed.
        EngineError: the device failed.
    """
    return HostMemory() if device.kind == "cpu" else CudaMemory(device)
