"""What the engines of the loaded models have counted."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from prometheus_client.registry import Collector

from triptych_serving.models.model import Model
from triptych_serving.observability.families import Family, Labels, counter, gauge, histogram
from triptych_serving.scheduling.admission import Counters
from triptych_serving.scheduling.step_stats import StepStats

# Member of Counters -> name, help.
COUNTERS = {
    "cancelled": ("requests_cancelled", "Requests whose caller went away before an engine was done with them"),
    "expired": ("requests_expired", "Requests whose deadline passed in an engine"),
    "rejected": ("requests_rejected", "Requests that an engine refused: its queue was full, or the wait too long"),
    "failed": ("requests_failed", "Requests that failed in an engine"),
    "freed": ("slots_freed", "Rows that left an engine before they were done: nobody waited for them any more"),
}


@dataclass(frozen=True)
class Snapshot:
    """One model at one moment, all its engines together."""

    running: int  # texts or images
    waiting: int
    cache_bytes: int
    counters: Counters
    steps: StepStats

    @classmethod
    def of(cls, model: Model) -> "Snapshot":
        """Now."""
        engines, (running, waiting) = model.engines, model.load()
        return cls(
            running=running,
            waiting=waiting,
            cache_bytes=sum(engine.bytes for engine in engines),
            counters=_sum([engine.counters for engine in engines]),
            steps=StepStats.total(engine.steps for engine in engines),
        )


class EngineCollector(Collector):
    """Asks the engines anew each time: a model that is gone leaves nothing behind.

    Args:
        models: those that are loaded.
    """

    def __init__(self, models: Callable[[], Sequence[Model]]) -> None:
        self._models = models

    def describe(self) -> Iterator[Family]:
        """Every metric, without samples: for the registry, which need not ask the models when it is made."""
        return _families({})

    def collect(self) -> Iterator[Family]:
        """Every metric, with a sample for each model."""
        return _families({(model.name, str(model.version)): Snapshot.of(model) for model in self._models()})


def _families(of: Mapping[Labels, Snapshot]) -> Iterator[Family]:
    yield gauge("num_requests_running", "Texts or images in slots or batches", {k: s.running for k, s in of.items()})
    yield gauge("num_requests_waiting", "Texts or images that wait", {k: s.waiting for k, s in of.items()})
    yield gauge("model_cache_bytes", "Size of a model's caches", {k: s.cache_bytes for k, s in of.items()})
    for member, (name, text) in COUNTERS.items():
        yield counter(name, text, {k: getattr(s.counters, member) for k, s in of.items()})
    yield histogram("step_duration_seconds", "One run of a graph", {k: s.steps.seconds for k, s in of.items()})
    yield histogram("batch_size", "Rows in one run of a graph", {k: s.steps.rows for k, s in of.items()})


def _sum(counters: Sequence[Counters]) -> Counters:
    return Counters(**{f.name: sum(getattr(each, f.name) for each in counters) for f in fields(Counters)})
