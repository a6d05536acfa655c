"""Memory of the devices that models compute on: arrays by their address, and one stream of work in order."""

from triptych_serving.runtime.memory.array import DeviceArray
from triptych_serving.runtime.memory.box import Box
from triptych_serving.runtime.memory.cudart import INSTALL
from triptych_serving.runtime.memory.host import HostMemory, device_array, host_view
from triptych_serving.runtime.memory.opening import open_memory
from triptych_serving.runtime.memory.protocol import Mark, Memory

__all__ = ["INSTALL", "Box", "DeviceArray", "HostMemory", "Mark", "Memory", "device_array", "host_view", "open_memory"]
