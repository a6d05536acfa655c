"""Metrics that are read at each scrape: engines, models, GPUs and the response cache."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from triptych.version import __version__
from triptych_serving.models.model import Model
from triptych_serving.observability.collectors import ENGINE_COUNTERS, MetricSources, engine_collector, state_collector
from triptych_serving.repository.registry import ModelVersion, Registry, State
from triptych_serving.repository.repository import VersionFolder
from triptych_serving.response_cache.response_cache import CacheCounters
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.memory.budget import Budget
from triptych_serving.scheduling.admission import Counters
from triptych_serving.scheduling.step_stats import ROWS, StepStats

TOY = {"model": "toy", "version": "1"}


class StubEngine:
    """An engine that has run one step."""

    bytes = 1000

    def __init__(self, running: int, waiting: int = 0) -> None:
        self.steps = StepStats()
        self.steps.add(0.003, running)
        self.counters = Counters(finished=9, cancelled=1, expired=2, failed=3, freed=4, rejected=5)
        self.running, self.waiting = running, waiting


@dataclass
class StubModel:
    name: str = "toy"
    version: int = 1
    engines: list[StubEngine] = field(default_factory=list)
    precision: str = "int8"
    weight_bytes: int = 77
    devices: tuple[Device, ...] = (CPU,)
    reserved: dict[Device, int] = field(default_factory=dict)
    manifest: Any = field(default_factory=lambda: SimpleNamespace(task="translation"))

    def count_rows(self) -> tuple[int, int]:
        return sum(engine.running for engine in self.engines), sum(engine.waiting for engine in self.engines)


def engines_of(*models: StubModel, leaving: Sequence[StubModel] = ()) -> CollectorRegistry:
    registry = CollectorRegistry()
    loaded = [
        ModelVersion(VersionFolder(model.name, model.version, Path("toy")), State.READY, cast("Model", model))
        for model in models
    ]
    sources = MetricSources(lambda: Registry(loaded), lambda: True, leaving=lambda: cast("list[Model]", leaving))
    registry.register(engine_collector(sources))
    return registry


def state_of(model: StubModel | None, state: State = State.READY, **sources: Any) -> CollectorRegistry:
    loaded = ModelVersion(VersionFolder("toy", 1, Path("toy/1")), state, model)
    registry = CollectorRegistry()
    registry.register(state_collector(MetricSources(lambda: Registry([loaded]), **{"ready": lambda: True, **sources})))
    return registry


def test_engines_of_a_model_are_summed() -> None:
    registry = engines_of(StubModel(engines=[StubEngine(2, 5), StubEngine(1)]), StubModel(version=2, engines=[StubEngine(7)]))

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"triptych_{name}", TOY)

    assert value("num_requests_running") == 3
    assert value("num_requests_waiting") == 5
    assert value("model_cache_bytes") == 2000
    assert value("step_duration_seconds_count") == value("batch_size_count") == 2
    assert value("batch_size_sum") == 3
    counted = {member: value(f"{name}_total") for member, (name, _) in ENGINE_COUNTERS.items()}
    assert counted == {"cancelled": 2, "expired": 4, "failed": 6, "freed": 8, "rejected": 10}
    assert registry.get_sample_value("triptych_num_requests_running", {**TOY, "version": "2"}) == 7


def test_histogram_buckets_are_cumulative() -> None:
    registry = engines_of(StubModel(engines=[StubEngine(2), StubEngine(1), StubEngine(5000)]))
    buckets = {
        bound: registry.get_sample_value("triptych_batch_size_bucket", {**TOY, "le": bound})
        for bound in (*map(str, ROWS), "+Inf")
    }
    assert buckets == {"1.0": 1, **{str(bound): 2 for bound in ROWS[1:]}, "+Inf": 3}


def test_models_count_until_their_last_request_has_ended() -> None:
    old, replaced = StubModel(engines=[StubEngine(3, 4)]), StubModel(version=2, engines=[StubEngine(2)])
    leaving = [old, replaced]
    registry = engines_of(StubModel(version=2, engines=[StubEngine(1, 6)]), leaving=leaving)

    def rows(version: str) -> list[float | None]:
        labels = {**TOY, "version": version}
        return [registry.get_sample_value(f"triptych_num_requests_{state}", labels) for state in ("running", "waiting")]

    assert [rows("1"), rows("2")] == [[3, 4], [3, 6]]
    leaving.clear()
    assert [rows("1"), rows("2")] == [[None, None], [1, 6]]
    assert b'version="1"' not in generate_latest(registry)


def test_registry_can_be_restricted_to_one_metric() -> None:
    restricted = engines_of(StubModel(engines=[StubEngine(1)])).restricted_registry(["triptych_num_requests_running"])
    assert {metric.name for metric in restricted.collect()} == {"triptych_num_requests_running"}


@pytest.mark.parametrize("ready", [True, False])
def test_ready(ready: bool) -> None:
    assert state_of(None, State.LOADING, ready=lambda: ready).get_sample_value("triptych_ready") == ready


@pytest.mark.parametrize(
    ("state", "value"), [(State.READY, 1), (State.LOADING, 0), (State.UNLOADING, 0), (State.FAILED, 0), (State.UNLOADED, None)]
)
def test_model_ready(state: State, value: float | None) -> None:
    model = StubModel() if state is State.READY else None
    assert state_of(model, state).get_sample_value("triptych_model_ready", TOY) == value


def test_server_and_model_info() -> None:
    registry = state_of(StubModel())
    about = {**TOY, "task": "translation", "precision": "int8", "device": "cpu"}
    assert registry.get_sample_value("triptych_model_info", about) == 1
    assert registry.get_sample_value("triptych_model_weights_bytes", TOY) == 77
    assert registry.get_sample_value("triptych_build_info", {"version": __version__}) == 1
    assert state_of(None, State.FAILED).get_sample_value("triptych_model_weights_bytes", TOY) is None
    samples = [sample.name for family in registry.collect() for sample in family.samples]
    assert not [name for name in samples if "gpu" in name]


def test_gpu_memory() -> None:
    first, second = Device("cuda"), Device("cuda", 1)
    model = StubModel(precision="fp16", devices=(first, second), reserved={first: 30, second: 40})
    budgets = {first: Budget(first, 100), second: Budget(second, 200), CPU: Budget(CPU)}
    budgets[first].reserve("model toy version 1", {"weights": 10, "caches": 20})
    registry = state_of(model, budgets=lambda: budgets)
    about = {**TOY, "task": "translation", "precision": "fp16", "device": "cuda:0,cuda:1"}
    assert registry.get_sample_value("triptych_model_info", about) == 1
    for device, limit, reserved, own in (("cuda:0", 100, 30, 30), ("cuda:1", 200, 0, 40)):
        assert registry.get_sample_value("triptych_gpu_memory_limit_bytes", {"device": device}) == limit
        assert registry.get_sample_value("triptych_gpu_memory_reserved_bytes", {"device": device}) == reserved
        assert registry.get_sample_value("triptych_model_gpu_memory_bytes", {**TOY, "device": device}) == own
    for name in ("limit", "reserved"):
        assert registry.get_sample_value(f"triptych_gpu_memory_{name}_bytes", {"device": "cpu"}) is None


def test_response_cache() -> None:
    cache = CacheCounters(hits=1, misses=2, shared=3, evictions=4, entries=5, bytes=6)
    registry = state_of(StubModel(), cache=cache)
    names = ("hits_total", "misses_total", "shared_total", "evictions_total", "entries", "bytes")
    assert [registry.get_sample_value(f"triptych_response_cache_{name}") for name in names] == [1, 2, 3, 4, 5, 6]
