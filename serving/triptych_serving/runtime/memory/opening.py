"""The memory of a device, whichever it is."""

from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory.cuda import CudaMemory
from triptych_serving.runtime.memory.host import HostMemory
from triptych_serving.runtime.memory.protocol import Memory


def open_memory(device: Device) -> Memory:
    """A new stream on it.

    Raises:
        DeviceError: there is no such device, or what it takes is not installed.
        EngineError: the device failed.
    """
    return HostMemory() if device.kind == "cpu" else CudaMemory(device)
