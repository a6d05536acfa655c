"""Resources of a text or image model on its devices: graphs, streams and reserved memory."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

from triptych_serving.encoding.cuda.graph import DeviceGraph, GraphPlan
from triptych_serving.encoding.cuda.replica_pool import ReplicaPool
from triptych_serving.encoding.options import OVERLAP
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory import Memory, open_memory
from triptych_serving.runtime.memory.budget import Budget, Budgets, Reservation
from triptych_serving.runtime.process import forget_frames
from triptych_serving.runtime.session import LIBRARY_BYTES, Session, SessionPlace
from triptych_serving.runtime.session_pool import SessionPool

# Intermediate memory in bytes for each position and each number of its hidden state: states, queries, keys and values, the
# feed-forward's inner layer, and room for the next layer. Where attention is not fused, each attended position adds a bit.
STATE_BYTES, SCORE_BYTES = 40, 1 / 16
GRAPH_BYTES = 1 << 20  # of a captured run

MakePlan = Callable[[Session], GraphPlan]
OpenMemory = Callable[[Device], Memory]


@dataclass(frozen=True)
class GraphSpec:
    """A graph to be loaded on devices."""

    owner: str  # for error messages: `model NAME version 1`
    path: Path
    weight_bytes: int
    width: int  # of a hidden state, or more
    threads: int  # inside one run, where the device is the CPU
    make_plan: MakePlan | None  # None: it is not bound to memory


PoolT = TypeVar("PoolT", ReplicaPool, SessionPool)


class DeviceResources(Generic[PoolT]):
    """The replicas of a model's graph and their reserved memory. Thread-safe.

    Args:
        pool: the graph on every device.
        reservations: by GPU.
    """

    def __init__(self, pool: PoolT, reservations: Mapping[Device, Reservation]) -> None:
        self.pool: PoolT = pool
        self._reservations = reservations
        self._closing = Lock()

    @property
    def reserved(self) -> dict[Device, int]:
        """Reserved bytes on each GPU."""
        return {device: reservation.bytes for device, reservation in self._reservations.items()}

    def close(self) -> None:
        """Free everything, and return when that is done; no batch may come afterwards. Idempotent."""
        with self._closing, ExitStack() as last:
            for reservation in self._reservations.values():
                last.callback(reservation.release)
            self.pool.close()


def open_device_resources(
    spec: GraphSpec,
    devices: Sequence[Device],
    budgets: Budgets | None,
    buffers: int,
    opened: OpenMemory = open_memory,
) -> DeviceResources[ReplicaPool]:
    """Load a graph on every device, bound to its memory.

    Args:
        devices: at least one.
        budgets: of the GPUs' memory; None: not limited.
        buffers: as ReplicaPool has it.
        opened: opens a stream on a device.

    Raises:
        BundleError: the graph cannot be loaded.
        DeviceError: a device cannot be used, or has no room.
        EngineError: a device failed.
    """
    graphs: list[DeviceGraph] = []
    reservations: dict[Device, Reservation] = {}
    with ExitStack() as undo:
        try:
            for device in devices:
                memory, transfers = (_opened(device, opened, undo) for _ in range(2))
                reservation, left = _reserved(spec, device, budgets, undo)
                graphs.append(_load(spec, SessionPlace(memory, left, device.kind == "cuda"), transfers, reservation))
                undo.callback(graphs[-1].close)
                if device.kind == "cuda":
                    reservations[device] = reservation
            pool = ReplicaPool(graphs, buffers)
        except BaseException as error:
            forget_frames(error)  # no session may outlive its stream, and the error's frames would keep it
            raise
        undo.pop_all()
    return DeviceResources(pool, reservations)


def open_device_sessions(
    spec: GraphSpec, devices: Sequence[Device], budgets: Budgets | None, opened: OpenMemory = open_memory
) -> DeviceResources[SessionPool]:
    """Load a graph on every device, for inputs of any shapes in host memory; arguments and errors as above."""
    sessions: list[Session] = []
    memories: list[Memory] = []
    reservations: dict[Device, Reservation] = {}
    with ExitStack() as undo:
        try:
            for device in devices:
                memories.append(_opened(device, opened, undo))
                reservations[device], left = _reserved(spec, device, budgets, undo)
                sessions.append(Session(spec.path, spec.threads, place=SessionPlace(memories[-1], left)))
        except BaseException as error:
            sessions.clear()
            forget_frames(error)  # as above
            raise
        undo.pop_all()
    return DeviceResources(SessionPool(sessions, memories), reservations)


def _opened(device: Device, opened: OpenMemory, undo: ExitStack) -> Memory:
    memory = opened(device)
    undo.callback(memory.close)
    return memory


def _reserved(spec: GraphSpec, device: Device, budgets: Budgets | None, undo: ExitStack) -> tuple[Reservation, int | None]:
    """Reserve memory for the weights; also return the bytes that were left before, None if there is no limit."""
    budget = budgets.of(device) if budgets else Budget(device)
    left = budget.left_bytes
    reservation = budget.reserve(spec.owner, {"weights": spec.weight_bytes, "libraries": LIBRARY_BYTES}, lower="")
    undo.callback(reservation.release)
    return reservation, left


def _load(spec: GraphSpec, place: SessionPlace, transfers: Memory, reservation: Reservation) -> DeviceGraph:
    """Load the graph, and reserve the rest of its memory, which is known then."""
    assert spec.make_plan is not None, "only graphs with a plan are bound"
    session = Session(spec.path, spec.threads, place=place)
    plan = spec.make_plan(session)
    reservation.budget.extend(reservation, planned_bytes(plan, spec.width))
    return DeviceGraph(session, place, transfers, plan)


def planned_bytes(plan: GraphPlan, width: int) -> dict[str, int]:
    """Return the bytes that a graph needs beside its weights, by purpose."""
    inputs, outputs = plan.block_bytes
    buckets = plan.buckets
    states = (bucket.tokens * width * (STATE_BYTES + SCORE_BYTES * bucket.length) for bucket in buckets.largest)
    return {
        "inputs": inputs + OVERLAP * plan.landing_bytes,
        "outputs": outputs,
        "between operators": int(max(states)) + 2 * outputs,
        f"{len(buckets.captured)} captured graphs": len(buckets.captured) * GRAPH_BYTES,
    }
