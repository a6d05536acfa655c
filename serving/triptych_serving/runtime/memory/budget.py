"""How much of a device's memory is whose: planned before anything is allocated."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from triptych_serving.errors import DeviceMemoryError
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory.cudart import GpuMemory, gpu_memory
from triptych_serving.runtime.memory.sizes import parse_bytes, show_bytes

FLAG = "--gpu-memory-limit"
LEAST = 1 << 20  # bytes; less is a part of all that was written wrongly
OF_FREE = 0.9  # what is left: libraries load their code, allocators round up


@dataclass(frozen=True)
class MemoryLimit:
    """Of each GPU: bytes, or a part of all that it has. `str()` is what `parse_limit` takes."""

    bytes: int | None = None
    fraction: float | None = None  # above 0, at most 1

    def __str__(self) -> str:
        return str(self.bytes) if self.bytes is not None else f"{self.fraction:g}"

    def of(self, memory: GpuMemory) -> int:
        """In bytes, of this GPU."""
        return self.bytes if self.bytes is not None else int(memory.total_bytes * (self.fraction or 0))


def parse_limit(text: str) -> MemoryLimit:
    """`8GiB`, `500MiB`, a number of bytes, or a part of all memory such as `0.9`.

    Raises:
        ValueError: it is neither.
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
            f"{text!r} is neither a number of bytes such as 8GiB, at least 1MiB, nor a part of all such as 0.9"
        ) from None
    return MemoryLimit(bytes=size)


class Reservation:
    """What somebody may allocate."""

    def __init__(self, budget: "Budget", what: str, parts: Mapping[str, int]) -> None:
        self.what = what
        self.parts = dict(parts)  # bytes
        self.bytes = sum(self.parts.values())
        self._budget = budget

    def release(self) -> None:
        """Give it back; again does nothing."""
        self._budget.give_back(self)


class Budget:
    """Of one device. Thread-safe.

    Args:
        device: whose.
        limit_bytes: of all reservations together; None: no limit.
    """

    def __init__(self, device: Device, limit_bytes: int | None = None) -> None:
        self.device = device
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._held: list[Reservation] = []

    @property
    def reserved_bytes(self) -> int:
        """Of all reservations."""
        with self._lock:
            return sum(held.bytes for held in self._held)

    def reserve(
        self, what: str, parts: Mapping[str, int], lower: str = "--slots", instead: Reservation | None = None
    ) -> Reservation:
        """Set memory aside.

        Args:
            what: whose it is: `model NAME version 1`.
            parts: bytes, by what they are for.
            lower: what makes it less, for whom it does not fit; empty: nothing does.
            instead: what it takes the place of, which is kept if it does not fit.

        Raises:
            DeviceMemoryError: it does not fit.
        """
        wanted = Reservation(self, what, parts)
        with self._lock:
            others = [held for held in self._held if held is not instead]
            left = None if self.limit_bytes is None else self.limit_bytes - sum(held.bytes for held in others)
            if left is not None and wanted.bytes > left:
                raise DeviceMemoryError(self._refusal(wanted, others, left, lower))
            self._held = [*others, wanted]
        return wanted

    def give_back(self, reservation: Reservation) -> None:
        """The reservation's way back."""
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
    """Of all devices, made when one is first asked for. Thread-safe.

    Args:
        limit: of each GPU; None: 0.9 of what is free when its budget is made.
        look: says how much memory a GPU has.
    """

    def __init__(self, limit: MemoryLimit | None = None, look: Callable[[Device], GpuMemory] = gpu_memory) -> None:
        self._limit = limit
        self._look = look
        self._lock = threading.Lock()
        self._made: Mapping[Device, Budget] = {}  # replaced, never changed

    @property
    def made(self) -> Mapping[Device, Budget]:
        """So far; to look at them asks no GPU, and waits for nobody who does."""
        return self._made

    def of(self, device: Device) -> Budget:
        """The device's; the CPU's has no limit.

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
