"""Reserved memory of a model on its devices, and its release."""

import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from numpy.typing import DTypeLike

from triptych_serving.encoding.cuda import device_resources
from triptych_serving.encoding.cuda.device_resources import (
    GRAPH_BYTES,
    LIBRARY_BYTES,
    DeviceResources,
    GraphSpec,
    open_device_resources,
    open_device_sessions,
    planned_bytes,
)
from triptych_serving.encoding.cuda.replica_pool import ReplicaPool
from triptych_serving.encoding.options import GPU_BATCHES
from triptych_serving.errors import BundleError, DeviceMemoryError, EngineError
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.memory import DeviceArray
from triptych_serving.runtime.memory.budget import Budgets, MemoryLimit
from triptych_serving.runtime.memory.cudart import GpuMemory
from triptych_serving.runtime.memory.sizes import show_bytes
from triptych_serving.runtime.session import SessionPlace

from ...calls import PATIENCE_SECONDS
from ...stub_device import StubMemory, StubSession, stub_plan

GPUS = (Device("cuda", 0), Device("cuda", 1))
WEIGHTS = 30 << 20
SPEC = GraphSpec("model bert version 1", Path("graph.fp16.onnx"), WEIGHTS, 768, 1, lambda session: stub_plan())
PLAN = stub_plan()


class GpuStub(StubMemory):
    """Looks like a GPU's memory; notes whether a session was left when it was closed."""

    def __init__(self, device: Device, sessions: "weakref.WeakSet[StubSession]") -> None:
        super().__init__()
        self.device = device
        self.left: int | None = None
        self.closing, self.may_close = threading.Event(), threading.Event()
        self.may_close.set()
        self.room: int | None = None  # number of allocations that succeed; None: all
        self._sessions = sessions

    def zeros(self, shape: Sequence[int], dtype: DTypeLike) -> DeviceArray:
        if self.room == 0:
            raise DeviceMemoryError("no memory for uint8")
        self.room = None if self.room is None else self.room - 1
        return super().zeros(shape, dtype)

    def close(self) -> None:
        self.left = len(self._sessions)
        self.closing.set()
        assert self.may_close.wait(PATIENCE_SECONDS)
        super().close()


class Opened:
    """Opens streams and sessions, and stores them."""

    def __init__(self) -> None:
        self.memories: list[GpuStub] = []
        self.places: list[SessionPlace] = []
        self.sessions: weakref.WeakSet[StubSession] = weakref.WeakSet()
        self.fault: Exception | None = None
        self.room: int | None = None

    def memory(self, device: Device) -> GpuStub:
        self.memories.append(GpuStub(device, self.sessions))
        self.memories[-1].room = self.room
        return self.memories[-1]

    def session(self, path: Path, threads: int, place: SessionPlace) -> StubSession:
        self.places.append(place)
        if self.fault and len(self.places) == 2:
            raise self.fault
        session = StubSession()
        self.sessions.add(session)
        return session


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    made = Opened()
    monkeypatch.setattr(device_resources, "Session", made.session)
    return made


def budgets_of(limit_bytes: int) -> Budgets:
    return Budgets(MemoryLimit(bytes=limit_bytes), lambda device: GpuMemory(1 << 40, 1 << 40))


def resources_on(opened: Opened, *devices: Device, budgets: Budgets | None = None) -> closing[DeviceResources[ReplicaPool]]:
    return closing(open_device_resources(SPEC, devices, budgets, 3, opened.memory))


def test_memory_is_reserved_on_every_gpu_and_released(opened: Opened) -> None:
    budgets = budgets_of(1 << 30)
    planned = WEIGHTS + LIBRARY_BYTES + sum(planned_bytes(PLAN, 768).values())
    with resources_on(opened, *GPUS, budgets=budgets) as made:
        assert made.reserved == dict.fromkeys(GPUS, planned)
        assert [budgets.of(gpu).reserved_bytes for gpu in GPUS] == [planned, planned]
        assert [(place.memory.device, place.limit_bytes, place.captures) for place in opened.places] == [
            (gpu, 1 << 30, True) for gpu in GPUS
        ]
    assert [budgets.of(gpu).reserved_bytes for gpu in GPUS] == [0, 0]
    assert [memory.closed for memory in opened.memories] == [1] * 4
    assert opened.memories[0].left == 0, "no session is left on the device that is closed last"


def test_sessions_without_a_plan_reserve_their_weights(opened: Opened) -> None:
    budgets, taken = budgets_of(1 << 30), WEIGHTS + LIBRARY_BYTES
    made = open_device_sessions(replace(SPEC, make_plan=None), GPUS, budgets, opened.memory)
    assert made.reserved == dict.fromkeys(GPUS, taken)
    assert [(place.limit_bytes, place.captures) for place in opened.places] == [(1 << 30, False)] * 2
    made.close()
    assert [budgets.of(gpu).reserved_bytes for gpu in GPUS] == [0, 0]
    assert [(memory.left, memory.closed) for memory in opened.memories] == [(0, 1)] * 2


def test_nothing_is_limited_on_the_cpu_and_without_budgets(opened: Opened) -> None:
    with resources_on(opened, CPU, budgets=budgets_of(1)) as made:
        assert made.reserved == {}
        assert not opened.places[0].captures
    with resources_on(opened, GPUS[0]) as made:
        assert made.reserved[GPUS[0]] > WEIGHTS
        assert opened.places[1].limit_bytes is None


def test_a_graph_that_does_not_fit_is_rejected_with_figures(opened: Opened) -> None:
    both = WEIGHTS + LIBRARY_BYTES
    for limit, taken, shown in (
        (WEIGHTS, both, "30 MiB"),
        (both + 1000, both + sum(planned_bytes(PLAN, 768).values()), "94 MiB"),
    ):
        budgets = budgets_of(limit)
        with pytest.raises(DeviceMemoryError) as refused:
            open_device_resources(SPEC, GPUS, budgets, 3, opened.memory)
        message = str(refused.value)
        assert message.startswith(f"model bert version 1 takes {show_bytes(taken)} of cuda:0 (weights 30 MiB, libraries 64 MiB")
        assert message.endswith(f"), {shown} are left of {shown}: raise --gpu-memory-limit")
        assert budgets.of(GPUS[0]).reserved_bytes == 0
    assert "captured graphs" in message
    assert [memory.left for memory in opened.memories] == [0] * 4, "no session outlives its stream"
    budgets = budgets_of(both + 1000)
    budgets.of(GPUS[0]).reserve("model vit version 1", {"weights": 1000})
    with pytest.raises(DeviceMemoryError, match=r"\(model vit version 1 1000 B\): serve fewer models, or raise --gpu"):
        open_device_resources(SPEC, GPUS, budgets, 3, opened.memory)


@pytest.mark.parametrize(
    ("room", "fault", "message", "memories"),
    [
        (0, None, "no memory for uint8", 2),
        (1, None, "no memory for uint8", 2),
        (None, BundleError("here", ["the runtime cannot load it"]), "cannot load it", 4),
    ],
    ids=["inputs", "outputs", "second session"],
)
def test_a_failure_frees_sessions_before_their_streams(
    opened: Opened, room: int | None, fault: Exception | None, message: str, memories: int
) -> None:
    """The error is kept meanwhile."""
    opened.room, opened.fault, budgets = room, fault, budgets_of(1 << 30)
    with pytest.raises((BundleError, DeviceMemoryError), match=message):
        open_device_resources(SPEC, GPUS, budgets, 3, opened.memory)
    assert [memory.left for memory in opened.memories[:2]] == [0, 0]
    assert [bool(memory.closed) for memory in opened.memories] == [True] * memories
    assert [budgets.of(gpu).reserved_bytes for gpu in GPUS] == [0, 0]


def test_closing_twice_waits_for_the_first_close(opened: Opened) -> None:
    budgets = budgets_of(1 << 30)
    made = open_device_resources(SPEC, GPUS[:1], budgets, 3, opened.memory)
    memory, _ = opened.memories
    memory.may_close.clear()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(made.close)
        assert memory.closing.wait(PATIENCE_SECONDS)
        second = pool.submit(made.close)
        try:
            with pytest.raises(TimeoutError):
                second.result(timeout=0.05)
            assert budgets.of(GPUS[0]).reserved_bytes
        finally:
            memory.may_close.set()
        first.result()
        second.result()
    assert [each.closed for each in opened.memories] == [1, 1]
    assert not budgets.of(GPUS[0]).reserved_bytes


def test_memory_is_released_even_if_a_stream_cannot_be_closed(opened: Opened) -> None:
    budgets = budgets_of(1 << 30)
    made = open_device_resources(SPEC, GPUS, budgets, 3, opened.memory)
    opened.memories[0].close_fails = EngineError("cudaStreamDestroy: words")
    with pytest.raises(EngineError, match="cudaStreamDestroy"):
        made.close()
    assert [memory.closed for memory in opened.memories] == [1] * 4
    assert [budgets.of(gpu).reserved_bytes for gpu in GPUS] == [0, 0]


def test_planned_memory_by_purpose() -> None:
    planned = planned_bytes(stub_plan(GPU_BATCHES), 100)
    inputs, outputs = stub_plan(GPU_BATCHES).block_bytes
    assert planned["inputs"] == inputs
    assert planned["outputs"] == outputs
    assert planned["16 captured graphs"] == 16 * GRAPH_BYTES
    assert planned["between operators"] > 256 * 100 * 40
