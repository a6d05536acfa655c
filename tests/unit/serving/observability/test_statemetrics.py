"""Metrics of how things are: server, models, cache of answers."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from triptych.version import __version__
from triptych_serving.observability.sources import Sources
from triptych_serving.observability.statemetrics import StateCollector
from triptych_serving.repository.registry import Loaded, Registry, State
from triptych_serving.repository.repository import Entry
from triptych_serving.response_cache.cache import CacheCounters
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.memory.budget import Budget


@dataclass
class Task:
    task: str = "translation"


@dataclass
class StubModel:
    name: str = "toy"
    version: int = 1
    precision: str = "int8"
    weight_bytes: int = 77
    manifest: Task = field(default_factory=Task)
    devices: tuple[Device, ...] = (CPU,)
    reserved: dict[Device, int] = field(default_factory=dict)


TOY = {"model": "toy", "version": "1"}


def registry_of(state: State = State.READY, ready: bool = True, cache: CacheCounters | None = None) -> CollectorRegistry:
    entry = Entry("toy", 1, Path("toy/1"))
    loaded = Loaded(entry, state, StubModel() if state is State.READY else None)
    registry = CollectorRegistry()
    registry.register(StateCollector(Sources(lambda: Registry([loaded]), lambda: ready, (), cache or CacheCounters())))
    return registry


@pytest.mark.parametrize("ready", [True, False])
def test_whether_the_server_takes_requests(ready: bool) -> None:
    assert registry_of(ready=ready).get_sample_value("triptych_ready") == ready


@pytest.mark.parametrize(
    ("state", "value"),
    [(State.READY, 1), (State.LOADING, 0), (State.UNLOADING, 0), (State.FAILED, 0), (State.UNLOADED, None)],
)
def test_whether_a_version_serves(state: State, value: float | None) -> None:
    assert registry_of(state).get_sample_value("triptych_model_ready", TOY) == value


def test_what_a_model_is() -> None:
    registry = registry_of()
    about = {**TOY, "task": "translation", "precision": "int8", "device": "cpu"}
    assert registry.get_sample_value("triptych_model_info", about) == 1
    assert registry.get_sample_value("triptych_model_weights_bytes", TOY) == 77
    assert registry_of(State.FAILED).get_sample_value("triptych_model_weights_bytes", TOY) is None


def test_memory_of_gpus() -> None:
    first, second = Device("cuda"), Device("cuda", 1)
    model = StubModel(precision="fp16", devices=(first, second), reserved={first: 30, second: 40})
    budgets = {first: Budget(first, 100), second: Budget(second, 200), CPU: Budget(CPU)}
    budgets[first].reserve("model toy version 1", {"weights": 10, "caches": 20})
    registry = CollectorRegistry()
    loaded = Loaded(Entry("toy", 1, Path("toy/1")), State.READY, model)
    registry.register(StateCollector(Sources(lambda: Registry([loaded]), lambda: True, budgets=lambda: budgets)))
    about = {**TOY, "task": "translation", "precision": "fp16", "device": "cuda:0,cuda:1"}
    assert registry.get_sample_value("triptych_model_info", about) == 1
    for device, limit, reserved, own in (("cuda:0", 100, 30, 30), ("cuda:1", 200, 0, 40)):
        assert registry.get_sample_value("triptych_gpu_memory_limit_bytes", {"device": device}) == limit
        assert registry.get_sample_value("triptych_gpu_memory_reserved_bytes", {"device": device}) == reserved
        assert registry.get_sample_value("triptych_model_gpu_memory_bytes", {**TOY, "device": device}) == own
    for name in ("limit", "reserved"):
        assert registry.get_sample_value(f"triptych_gpu_memory_{name}_bytes", {"device": "cpu"}) is None


def test_without_gpus_nothing_is_said_of_them() -> None:
    registry = registry_of()
    samples = [sample.name for family in registry.collect() for sample in family.samples]
    assert samples
    assert not [name for name in samples if "gpu" in name]


def test_what_the_server_is() -> None:
    assert registry_of().get_sample_value("triptych_build_info", {"version": __version__}) == 1


def test_the_cache_of_answers() -> None:
    registry = registry_of(cache=CacheCounters(hits=1, misses=2, shared=3, evictions=4, entries=5, bytes=6))
    names = ("hits_total", "misses_total", "shared_total", "evictions_total", "entries", "bytes")
    assert [registry.get_sample_value(f"triptych_response_cache_{name}") for name in names] == [1, 2, 3, 4, 5, 6]
