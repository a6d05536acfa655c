"""Metrics that are read from engines when somebody asks."""

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest

from triptych_serving.observability.enginemetrics import COUNTERS, EngineCollector
from triptych_serving.scheduling.admission import Counters
from triptych_serving.scheduling.step_stats import ROWS, StepStats


class StubEngine:
    """An engine that has done something."""

    bytes = 1000

    def __init__(self, running: int, waiting: int) -> None:
        self.steps = StepStats()
        self.steps.add(0.003, running)
        self.counters = Counters(finished=9, cancelled=1, expired=2, failed=3, freed=4, rejected=5)
        self._load = running, waiting

    def load(self) -> tuple[int, int]:
        return self._load


@dataclass
class StubModel:
    name: str
    version: int
    engines: list[StubEngine]

    def load(self) -> tuple[int, int]:
        return sum(engine.load()[0] for engine in self.engines), sum(engine.load()[1] for engine in self.engines)


def registry_of(*models: StubModel) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(EngineCollector(lambda: models))
    return registry


def test_engines_of_a_model_are_summed() -> None:
    registry = registry_of(StubModel("toy", 3, [StubEngine(2, 5), StubEngine(1, 0)]))
    labels = {"model": "toy", "version": "3"}

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"triptych_{name}", labels)

    assert value("num_requests_running") == 3
    assert value("num_requests_waiting") == 5
    assert value("model_cache_bytes") == 2000
    assert value("step_duration_seconds_count") == value("batch_size_count") == 2
    assert value("batch_size_sum") == 3
    counted = {member: value(f"{name}_total") for member, (name, _) in COUNTERS.items()}
    assert counted == {"cancelled": 2, "expired": 4, "failed": 6, "freed": 8, "rejected": 10}


def test_buckets_hold_all_that_is_below() -> None:
    registry = registry_of(StubModel("toy", 3, [StubEngine(2, 5), StubEngine(1, 0), StubEngine(5000, 0)]))
    labels = {"model": "toy", "version": "3"}
    buckets = {
        bound: registry.get_sample_value("triptych_batch_size_bucket", {**labels, "le": bound})
        for bound in (*map(str, ROWS), "+Inf")
    }
    assert buckets == {"1.0": 1, **{str(bound): 2 for bound in ROWS[1:]}, "+Inf": 3}


def test_versions_are_told_apart() -> None:
    registry = registry_of(StubModel("toy", 1, [StubEngine(1, 0)]), StubModel("toy", 2, [StubEngine(2, 0)]))
    running = [registry.get_sample_value("triptych_num_requests_running", {"model": "toy", "version": v}) for v in ("1", "2")]
    assert running == [1, 2]


def test_a_model_that_is_gone_leaves_nothing() -> None:
    models = [StubModel("toy", 1, [StubEngine(1, 0)])]
    registry = CollectorRegistry()
    registry.register(EngineCollector(lambda: models))
    assert b'model="toy"' in generate_latest(registry)
    models.clear()
    assert b"model=" not in generate_latest(registry)


def test_one_metric_can_be_asked_for() -> None:
    restricted = registry_of(StubModel("toy", 1, [StubEngine(1, 0)])).restricted_registry(["triptych_num_requests_running"])
    assert {metric.name for metric in restricted.collect()} == {"triptych_num_requests_running"}
