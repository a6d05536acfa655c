"""Metrics read at each scrape: the state of the server and its models, memory of GPUs, response cache, engines."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields

from triptych.version import __version__
from triptych_serving.models.generation.generator import Generator
from triptych_serving.models.model import Model
from triptych_serving.observability.families import LABELS, Family, FamilyCollector, Labels, counter, gauge, histogram
from triptych_serving.repository.registry import ModelVersion, Registry, State
from triptych_serving.response_cache.response_cache import CacheCounters
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory.budget import Budget
from triptych_serving.scheduling.admission import Counters
from triptych_serving.scheduling.step_stats import StepStats

# Member of CacheCounters -> help.
CACHE_COUNTERS = {
    "hits": "Requests answered from the cache",
    "misses": "Requests that were computed while a cache or deduplication is on",
    "shared": "Requests that shared the result of an equal request in progress",
    "evictions": "Entries evicted by newer ones",
}
# Member of PrefixCounters -> help.
PREFIX_COUNTERS = {
    "queries": "Tokens of prompts that were looked up in a prefix cache",
    "hits": "Tokens of prompts whose keys and values were in a prefix cache",
    "evictions": "Blocks of a prefix cache that newer ones replaced",
}
# Member of Counters -> name, help.
ENGINE_COUNTERS = {
    "cancelled": ("requests_cancelled", "Requests cancelled by their caller before an engine was done"),
    "expired": ("requests_expired", "Requests whose deadline passed in an engine"),
    "rejected": ("requests_rejected", "Requests rejected by an engine: queue full, or expected wait too long"),
    "failed": ("requests_failed", "Requests that failed in an engine"),
    "freed": ("slots_freed", "Rows that left an engine early, as their request was cancelled, expired or failed"),
}


@dataclass(frozen=True)
class MetricSources:
    """The parts of a server that metrics and probes read."""

    registry: Callable[[], Registry]
    ready: Callable[[], bool]  # True while the server accepts requests
    leaving: Callable[[], Iterable[Model]] = tuple  # models that serve no new requests, and finish theirs
    methods: Iterable[str] = ()  # full names of the methods that metrics show from the start
    cache: CacheCounters = field(default_factory=CacheCounters)
    budgets: Callable[[], Mapping[Device, Budget]] = dict  # memory of the GPUs

    def models(self) -> list[Model]:
        """Return the models that can serve."""
        return self.registry().ready

    def engines(self) -> dict[Labels, list[Model]]:
        """Return the models that have engines, by name and version; during a replacement a version has several."""
        models: dict[Labels, list[Model]] = {}
        for model in (*self.models(), *self.leaving()):
            models.setdefault((model.name, str(model.version)), []).append(model)
        return models


def state_collector(sources: MetricSources) -> FamilyCollector:
    """Collect the state of the server, its models and its response cache."""
    return FamilyCollector(
        lambda: _state_families(False, (), CacheCounters(), {}),
        lambda: _state_families(sources.ready(), sources.registry().models, sources.cache, sources.budgets()),
    )


def engine_collector(sources: MetricSources) -> FamilyCollector:
    """Collect the engines' counters of the loaded models. They are read at each scrape, so unloaded models leave no series."""
    return FamilyCollector(
        lambda: _engine_families({}),
        lambda: _engine_families({key: EngineSnapshot.of(models) for key, models in sources.engines().items()}),
    )


@dataclass(frozen=True)
class EngineSnapshot:
    """The counters of all engines of a version at one moment."""

    running: int  # texts or images
    waiting: int
    cache_bytes: int
    counters: Counters
    steps: StepStats

    @classmethod
    def of(cls, models: Sequence[Model]) -> "EngineSnapshot":
        """Read the present counters of a version's models."""
        engines = [engine for model in models for engine in model.engines]
        running, waiting = map(sum, zip(*(model.count_rows() for model in models), strict=True))
        counters = [engine.counters for engine in engines]
        return cls(
            running=running,
            waiting=waiting,
            cache_bytes=sum(engine.bytes for engine in engines),
            counters=Counters(**{f.name: sum(getattr(each, f.name) for each in counters) for f in fields(Counters)}),
            steps=StepStats.total(engine.steps for engine in engines),
        )


def _engine_families(engines: Mapping[Labels, EngineSnapshot]) -> Iterator[Family]:
    yield gauge("num_requests_running", "Texts or images in slots or batches", {k: s.running for k, s in engines.items()})
    yield gauge("num_requests_waiting", "Texts or images that wait", {k: s.waiting for k, s in engines.items()})
    yield gauge("model_cache_bytes", "Size of a model's caches", {k: s.cache_bytes for k, s in engines.items()})
    for member, (name, text) in ENGINE_COUNTERS.items():
        yield counter(name, text, {k: getattr(s.counters, member) for k, s in engines.items()})
    yield histogram("step_duration_seconds", "Duration of one run of a graph", {k: s.steps.seconds for k, s in engines.items()})
    yield histogram("batch_size", "Rows in one run of a graph", {k: s.steps.rows for k, s in engines.items()})


def _state_families(
    ready: bool, loaded: Sequence[ModelVersion], cache: CacheCounters, budgets: Mapping[Device, Budget]
) -> Iterator[Family]:
    yield gauge("build_info", "1", {(__version__,): 1.0}, ("version",))
    yield gauge("ready", "1 while the server accepts requests", {(): float(ready)}, ())
    wanted = {(each.name, each.version): each.state for each in loaded if each.state is not State.UNLOADED}
    text = "1 if a version serves; 0 while it is loaded or unloaded, or if it cannot be loaded"
    yield gauge("model_ready", text, {key: float(state is State.READY) for key, state in wanted.items()})
    yield from _model_families({(each.name, each.version): each.model for each in loaded if each.model is not None})
    yield from _gpu_families(budgets)
    yield gauge("response_cache_entries", "Entries of the response cache", {(): cache.entries}, ())
    yield gauge("response_cache_bytes", "Memory of the response cache", {(): cache.bytes}, ())
    for member, text in CACHE_COUNTERS.items():
        yield counter(f"response_cache_{member}", text, {(): getattr(cache, member)}, ())


def _model_families(models: Mapping[Labels, Model]) -> Iterator[Family]:
    infos = {(*k, model.manifest.task, model.precision, ",".join(map(str, model.devices))): 1.0 for k, model in models.items()}
    yield gauge("model_info", "1 for every model that serves", infos, (*LABELS, "task", "precision", "device"))
    yield gauge("model_weights_bytes", "Size of a model's graphs", {k: model.weight_bytes for k, model in models.items()})
    reserved = {(*k, str(device)): size for k, model in models.items() for device, size in model.reserved.items()}
    prefixes = {k: model.prefixes for k, model in models.items() if isinstance(model, Generator)}
    for member, text in PREFIX_COUNTERS.items():
        yield counter(f"prefix_cache_{member}", text, {k: getattr(each, member) for k, each in prefixes.items()})
    yield gauge("prefix_cache_bytes", "Memory of a prefix cache", {k: each.bytes for k, each in prefixes.items()})
    yield gauge("model_gpu_memory_bytes", "Memory reserved for a model on a GPU", reserved, (*LABELS, "device"))


def _gpu_families(budgets: Mapping[Device, Budget]) -> Iterator[Family]:
    limits: dict[Labels, float] = {}
    reserved: dict[Labels, float] = {}
    for device, budget in budgets.items():
        if budget.limit_bytes is not None:  # None for the CPU
            limits[str(device),], reserved[str(device),] = budget.limit_bytes, budget.reserved_bytes
    yield gauge("gpu_memory_limit_bytes", "Memory of a GPU that models may reserve", limits, ("device",))
    yield gauge("gpu_memory_reserved_bytes", "Memory of a GPU that models have reserved", reserved, ("device",))
