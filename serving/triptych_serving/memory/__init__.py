"""Memory of the devices that models compute on: arrays by their address, and one stream of work in order."""

from triptych_serving.memory.array import DeviceArray
from triptych_serving.memory.box import Box
from triptych_serving.memory.cudart import INSTALL
from triptych_serving.memory.host import HostMemory, device_array, host_view
from triptych_serving.memory.opening import open_memory
from triptych_serving.memory.protocol import Mark, Memory

__all__ = ["INSTALL", "Box", "DeviceArray", "HostMemory", "Mark", "Memory", "device_array", "host_view", "open_memory"]
