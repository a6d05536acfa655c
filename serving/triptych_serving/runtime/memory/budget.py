"""Memory budgets of devices: reservations that are made before anything is allocated."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from triptych_serving.errors import DeviceMemoryError
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory.cudart import GpuMemory, gpu_memory
from triptych_serving.runtime.memory.sizes import parse_bytes, show_bytes

FLAG = "--gpu-memory-limit"
LEAST = 1 << 20  # bytes; a smaller number is probably a mistyped fraction
OF_FREE = 0.9  # the rest is for library code and rounding of allocators


@dataclass(frozen=True)
class MemoryLimit:
    """A limit for each GPU: bytes, or a fraction of its memory. `parse_limit(str(limit))` returns it again."""

    bytes: int | None = None
    fraction: float | None = None  # above 0, at most 1

    def __str__(self) -> str:
        return str(self.bytes) if self.bytes is not None else f"{self.fraction:g}"

    def of(self, memory: GpuMemory) -> int:
        """Return the limit of this GPU in bytes."""
        return self.bytes if self.bytes is not None else int(memory.total_bytes * (self.fraction or 0))


def parse_limit(text: str) -> MemoryLimit:
    """Parse `8GiB`, `500MiB`, a number of bytes, or a fraction of all memory such as `0.9`.

    Raises:
        ValueError: the text is malformed.
    """
    try:
        fraction = float(text)
    except ValueError:
        fraction = 0.0
    if 0 < fraction <= 1:
        return MemoryLimit(fraction=fraction)
    try:
        size = parse_bytes(text)
        if size < LEAST:
            raise ValueError
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a number of bytes such as 8GiB, at least 1MiB, nor a fraction such as 0.9"
        ) from None
    return MemoryLimit(bytes=size)


@dataclass(eq=False)
class Reservation:
    """Memory set aside for one owner."""

    budget: "Budget"
    what: str  # the owner: `model NAME version 1`
    parts: Mapping[str, int]  # bytes, by purpose

    @property
    def bytes(self) -> int:
        """Reserved bytes."""
        return sum(self.parts.values())

    def release(self) -> None:
        """Release it. Idempotent."""
        self.budget.give_back(self)


class Budget:
    """The memory budget of one device: the most that all reservations may take together; None: no limit. Thread-safe."""

    def __init__(self, device: Device, limit_bytes: int | None = None) -> None:
        self.device = device
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._held: list[Reservation] = []

    @property
    def reserved_bytes(self) -> int:
        """Bytes of all reservations."""
        with self._lock:
            return sum(held.bytes for held in self._held)

    @property
    def left_bytes(self) -> int | None:
        """Bytes that nobody has reserved; None: no limit."""
        return None if self.limit_bytes is None else self.limit_bytes - self.reserved_bytes

    def reserve(self, what: str, parts: Mapping[str, int], lower: str = "--slots") -> Reservation:
        """Set memory aside.

        Args:
            what: the owner: `model NAME version 1`.
            parts: bytes, by purpose.
            lower: the flag that reduces it, for the error message; empty: none.

        Raises:
            DeviceMemoryError: it does not fit.
        """
        reservation = Reservation(self, what, {})
        self.extend(reservation, parts, lower)
        return reservation

    def extend(self, reservation: Reservation, parts: Mapping[str, int], lower: str = "") -> None:
        """Set more memory aside for an owner, or nothing more if that does not fit; arguments and errors as for `reserve`."""
        wanted = Reservation(self, reservation.what, {**reservation.parts, **parts})
        with self._lock:
            others = [held for held in self._held if held is not reservation]
            left = None if self.limit_bytes is None else self.limit_bytes - sum(held.bytes for held in others)
            if left is not None and wanted.bytes > left:
                raise DeviceMemoryError(self._refusal(wanted, others, left, lower))
            reservation.parts = wanted.parts
            self._held = [*others, reservation]

    def give_back(self, reservation: Reservation) -> None:
        """Remove a reservation."""
        with self._lock:
            if reservation in self._held:
                self._held.remove(reservation)

    def _refusal(self, wanted: Reservation, others: Sequence[Reservation], left: int, lower: str) -> str:
        parts = ", ".join(f"{name} {show_bytes(size)}" for name, size in wanted.parts.items())
        neighbours = ", ".join(f"{held.what} {show_bytes(held.bytes)}" for held in others)
        way_out = f"lower {lower}, or " if lower else "serve fewer models, or " if others else ""
        return (
            f"{wanted.what} takes {show_bytes(wanted.bytes)} of {self.device} ({parts}), "
            f"{show_bytes(max(0, left))} are left of {show_bytes(self.limit_bytes or 0)}"
            + (f" ({neighbours})" if neighbours else "")
            + f": {way_out}raise {FLAG}"
        )


class Budgets:
    """The budgets of all devices, each created at its first use. Thread-safe.

    Args:
        limit: of each GPU; None: 0.9 of what is free when its budget is made.
    """

    def __init__(self, limit: MemoryLimit | None = None, look: Callable[[Device], GpuMemory] = gpu_memory) -> None:
        self._limit = limit
        self._look = look
        self._lock = threading.Lock()
        self._made: Mapping[Device, Budget] = {}  # replaced as a whole, never changed

    @property
    def made(self) -> Mapping[Device, Budget]:
        """Budgets created so far; reading them neither queries a GPU nor waits."""
        return self._made

    def of(self, device: Device) -> Budget:
        """Return a device's budget; the CPU's has no limit.

        Raises:
            DeviceMemoryError: less is free than the limit.
            DeviceError: there is no such GPU.
            EngineError: the device failed.
        """
        with self._lock:
            if device not in self._made:
                self._made = {**self._made, device: Budget(device, self._limit_of(device))}
            return self._made[device]

    def _limit_of(self, device: Device) -> int | None:
        if device.kind == "cpu":
            return None
        memory = self._look(device)
        if self._limit is None:
            return int(memory.free_bytes * OF_FREE)
        limit = self._limit.of(memory)
        if limit > memory.free_bytes:
            raise DeviceMemoryError(
                f"{FLAG} {self._limit} is {show_bytes(limit)} of {device}, of whose {show_bytes(memory.total_bytes)} "
                f"only {show_bytes(memory.free_bytes)} are free: lower it, or free the memory"
            )
        return limit
