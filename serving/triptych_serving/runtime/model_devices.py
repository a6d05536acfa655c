"""The devices of one model, and its reservations of their memory."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from threading import Lock

from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory import Memory, open_memory
from triptych_serving.runtime.memory.budget import Budgets, Reservation
from triptych_serving.runtime.session import SessionPlace


class ModelDevices:
    """Session places on each device, with their streams and reservations. Nothing is reserved on the CPU. Thread-safe.

    Args:
        devices: each holds the whole model.
        budgets: None: nothing is counted.
        owner: of the memory, for errors: `model NAME version 1`.
        plan: bytes on each device, by purpose.

    Raises:
        DeviceMemoryError: a device's budget has no room.
        DeviceError: a device cannot be used.
    """

    def __init__(self, devices: Sequence[Device], budgets: Budgets | None, owner: str, plan: Mapping[str, int]) -> None:
        self.places: tuple[SessionPlace, ...] = ()  # one on each device; `open` makes more
        self._reservations: dict[Device, Reservation] = {}
        self._memories: list[Memory] = []
        self._lock = Lock()
        try:
            for device in devices:
                limit = None
                if budgets is not None and device.kind != "cpu":
                    budget = budgets.of(device)
                    self._reservations[device] = budget.reserve(owner, plan)
                    limit = budget.limit_bytes
                self._memories.append(open_memory(device))
                self.places = (*self.places, SessionPlace(self._memories[-1], limit))
        except BaseException:
            self.close()
            raise

    @property
    def reserved(self) -> Mapping[Device, int]:
        """Reserved bytes on each GPU."""
        return {device: reservation.bytes for device, reservation in self._reservations.items()}

    def open(self, device: Device) -> SessionPlace:
        """Open another place on a device with its own stream, for another thread."""
        limit = next((place.limit_bytes for place in self.places if place.memory.device == device), None)
        with self._lock:
            self._memories.append(memory := open_memory(device))
        return SessionPlace(memory, limit)

    def close(self) -> None:
        """Free everything, and return when it is done; the sessions must be gone. Idempotent."""
        with self._lock, ExitStack() as last:
            for reservation in self._reservations.values():
                last.callback(reservation.release)
            for memory in self._memories:
                last.callback(memory.close)
            self._memories, self._reservations = [], {}
