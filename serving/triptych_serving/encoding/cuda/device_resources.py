"""What a model of the text or image family holds on its devices: graphs, streams, and the memory that is set aside for them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from triptych_serving.encoding.cuda.graph import DeviceGraph, GraphPlan
from triptych_serving.encoding.cuda.replica_pool import ReplicaPool
from triptych_serving.encoding.options import OVERLAP
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory import Memory, open_memory
from triptych_serving.runtime.memory.budget import Budget, Budgets, Reservation
from triptych_serving.runtime.process import forget_frames
from triptych_serving.runtime.session import Session, SessionPlace

# What lies between operators, in bytes for each position and each number of its hidden state: states, queries, keys and values,
# the feed-forward's inner layer, and room to write the next one. Where attention is not fused, each position seen adds a bit.
STATE_BYTES, SCORE_BYTES = 40, 1 / 16
LIBRARY_BYTES = 64 << 20
GRAPH_BYTES = 1 << 20  # of a captured run

MakePlan = Callable[[Session], GraphPlan]
OpenMemory = Callable[[Device], Memory]


@dataclass(frozen=True)
class GraphSpec:
    """A graph that is to run on devices."""

    what: str  # whose it is, for errors: `model NAME version 1`
    path: Path
    weight_bytes: int
    width: int  # numbers of a hidden state, or more
    threads: int  # inside a run, where the device is the CPU
    make_plan: MakePlan


class DeviceResources:
    """Thread-safe.

    Args:
        fleet: the graph on every device.
        shelves: what is set aside on each GPU.
    """

    def __init__(self, fleet: ReplicaPool, shelves: Mapping[Device, "MemoryReservation"]) -> None:
        self.fleet = fleet
        self._shelves = shelves
        self._closing = Lock()

    @property
    def reserved(self) -> dict[Device, int]:
        """Bytes on each GPU."""
        return {device: shelf.bytes for device, shelf in self._shelves.items()}

    def close(self) -> None:
        """Free everything, and return when it is; nobody may run anything any more. Idempotent."""
        with self._closing, ExitStack() as last:
            for shelf in self._shelves.values():
                last.callback(shelf.clear)
            self.fleet.close()


def open_device_resources(
    ware: GraphSpec,
    devices: Sequence[Device],
    budgets: Budgets | None,
    desks: int,
    opened: OpenMemory = open_memory,
) -> DeviceResources:
    """Load a graph on every device.

    Args:
        ware: the graph.
        devices: at least one.
        budgets: of the GPUs' memory; None: nothing is counted.
        desks: see Fleet.
        opened: makes a stream.

    Raises:
        BundleError: the graph cannot be loaded.
        DeviceError: a device cannot be used, or has no room.
        EngineError: a device failed.
    """
    graphs: list[DeviceGraph] = []
    shelves: dict[Device, MemoryReservation] = {}
    with ExitStack() as undo:
        try:
            for device in devices:
                memory, transfers = (_opened(device, opened, undo) for _ in range(2))
                shelf = MemoryReservation(ware.what, budgets.of(device) if budgets and device.kind == "cuda" else None)
                undo.callback(shelf.clear)
                graphs.append(_load(ware, memory, transfers, shelf))
                undo.callback(graphs[-1].close)
                if device.kind == "cuda":
                    shelves[device] = shelf
            fleet = ReplicaPool(graphs, desks)
        except BaseException as error:
            forget_frames(error)  # no session must outlive its stream, and the error would keep it
            raise
        undo.pop_all()
    return DeviceResources(fleet, shelves)


class MemoryReservation:
    """What one model has set aside on one device.

    Args:
        what: whose it is, for errors.
        budget: the device's; None: nothing is counted.
    """

    def __init__(self, what: str, budget: Budget | None) -> None:
        self._held: Reservation | None = None
        self._what = what
        self._budget = budget

    @property
    def bytes(self) -> int:
        """In all."""
        return self._held.bytes if self._held else 0

    @property
    def left(self) -> int | None:
        """Bytes that nobody has set aside; None: no limit."""
        if self._budget is None or self._budget.limit_bytes is None:
            return None
        return self._budget.limit_bytes - self._budget.reserved_bytes

    def reserve(self, parts: Mapping[str, int]) -> None:
        """Set these aside as well: all follows from the model, so that nothing makes it less.

        Raises:
            DeviceMemoryError: there is no room.
        """
        if self._budget is not None:
            known = self._held.parts if self._held else {}
            self._held = self._budget.reserve(self._what, {**known, **parts}, lower="", instead=self._held)

    def clear(self) -> None:
        """Give it back. Idempotent."""
        if self._held:
            self._held.release()


def _opened(device: Device, opened: OpenMemory, undo: ExitStack) -> Memory:
    memory = opened(device)
    undo.callback(memory.close)
    return memory


def _load(ware: GraphSpec, memory: Memory, transfers: Memory, shelf: MemoryReservation) -> DeviceGraph:
    """Weights first: what else it takes is known once it is loaded."""
    left = shelf.left
    shelf.reserve({"weights": ware.weight_bytes, "libraries": LIBRARY_BYTES})
    place = SessionPlace(memory, left, captures=memory.device.kind == "cuda")
    session = Session(ware.path, ware.threads, place=place)
    plan = ware.make_plan(session)
    shelf.reserve(planned_bytes(plan, ware.width))
    return DeviceGraph(session, place, transfers, plan)


def planned_bytes(plan: GraphPlan, width: int) -> dict[str, int]:
    """What a graph takes beside its weights, by what it is for."""
    inputs, outputs = plan.block_bytes
    buckets = plan.buckets
    states = (bucket.tokens * width * (STATE_BYTES + SCORE_BYTES * bucket.length) for bucket in buckets.largest)
    return {
        "inputs": inputs + OVERLAP * plan.landing_bytes,
        "outputs": outputs,
        "between operators": int(max(states)) + 2 * outputs,
        f"{len(buckets.captured)} captured graphs": len(buckets.captured) * GRAPH_BYTES,
    }
