"""The devices of one model: what is set aside, and given back once."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from triptych_serving.errors import EngineError
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory.budget import Budgets
from triptych_serving.runtime.memory.cudart import GpuMemory
from triptych_serving.runtime.model_devices import ModelDevices

from ..calls import PATIENCE_SECONDS
from ..stub_device import StubMemory

GPUS = (Device("cuda", 0), Device("cuda", 1))
PARTS = {"weights": 10, "caches of 4 rows": 20}


class SlowMemory(StubMemory):
    """Is closed when it may be."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = device
        self.closing, self.may_close = threading.Event(), threading.Event()
        self.may_close.set()

    def close(self) -> None:
        self.closing.set()
        assert self.may_close.wait(PATIENCE_SECONDS)
        super().close()


@pytest.fixture
def memories(monkeypatch: pytest.MonkeyPatch) -> list[SlowMemory]:
    """Memories that were opened."""
    made: list[SlowMemory] = []

    def opened(device: Device) -> SlowMemory:
        made.append(SlowMemory(device))
        return made[-1]

    monkeypatch.setattr("triptych_serving.runtime.model_devices.open_memory", opened)
    return made


@pytest.fixture
def budgets() -> Budgets:
    return Budgets(None, look=lambda device: GpuMemory(1000, 1000))


def test_each_device_has_a_place_and_a_reservation(memories: list[SlowMemory], budgets: Budgets) -> None:
    devices = ModelDevices(GPUS, budgets, "model toy version 1", PARTS)
    assert [(place.memory, place.limit_bytes) for place in devices.places] == [(memory, 900) for memory in memories]
    another = devices.open(GPUS[1])
    assert (another.memory, another.memory.device, another.limit_bytes) == (memories[2], GPUS[1], 900)
    assert devices.reserved == dict.fromkeys(GPUS, 30)
    devices.close()
    devices.close()
    assert [memory.closed for memory in memories] == [1] * 3
    assert devices.reserved == {}


def test_a_second_close_waits_for_the_first(memories: list[SlowMemory], budgets: Budgets) -> None:
    devices = ModelDevices(GPUS, budgets, "model toy version 1", PARTS)
    memories[0].may_close.clear()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(devices.close)
        assert memories[0].closing.wait(PATIENCE_SECONDS)
        second = pool.submit(devices.close)
        try:
            with pytest.raises(TimeoutError):
                second.result(timeout=0.05)
        finally:
            memories[0].may_close.set()
        first.result()
        second.result()
    assert [memory.closed for memory in memories] == [1, 1]


def test_everything_is_released_if_a_stream_cannot_be_closed(memories: list[SlowMemory], budgets: Budgets) -> None:
    devices = ModelDevices(GPUS, budgets, "model toy version 1", PARTS)
    for memory in memories:
        memory.close_fails = EngineError("cudaStreamDestroy: words")
    with pytest.raises(EngineError, match="cudaStreamDestroy"):
        devices.close()
    assert [memory.closed for memory in memories] == [1, 1]
    assert [budgets.of(gpu).reserved_bytes for gpu in GPUS] == [0, 0]
