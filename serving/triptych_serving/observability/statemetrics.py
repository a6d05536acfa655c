"""How things are at the moment: the server, its models, the cache of answers."""

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.registry import Collector

from triptych.version import __version__
from triptych_serving.models.model import Model
from triptych_serving.observability.families import LABELS, Family, Labels, counter, gauge
from triptych_serving.observability.sources import Sources
from triptych_serving.repository.registry import Loaded, State
from triptych_serving.response_cache.cache import CacheCounters
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory.budget import Budget

CACHE = {
    "hits": "Requests whose answer was kept",
    "misses": "Requests whose answer had to be computed while answers are kept or shared",
    "shared": "Requests that got the answer of an equal one which was under way",
    "evictions": "Kept answers that gave way to newer ones",
}


class StateCollector(Collector):
    """Looks each time somebody asks.

    Args:
        sources: where.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def describe(self) -> Iterator[Family]:
        """Every metric, without samples of models."""
        return _families(False, (), CacheCounters(), {})

    def collect(self) -> Iterator[Family]:
        """Every metric."""
        sources = self._sources
        return _families(sources.ready(), sources.registry().models, sources.cache, sources.budgets())


def _families(
    ready: bool, loaded: Sequence[Loaded], cache: CacheCounters, budgets: Mapping[Device, Budget]
) -> Iterator[Family]:
    yield gauge("build_info", "1", {(__version__,): 1.0}, ("version",))
    yield gauge("ready", "1 while the server takes requests", {(): float(ready)}, ())
    yield _readiness(loaded)
    yield from _models({(each.name, each.version): each.model for each in loaded if each.model is not None})
    yield from _gpus(budgets)
    yield gauge("response_cache_entries", "Answers that are kept", {(): cache.entries}, ())
    yield gauge("response_cache_bytes", "Memory that they take", {(): cache.bytes}, ())
    for member, text in CACHE.items():
        yield counter(f"response_cache_{member}", text, {(): getattr(cache, member)}, ())


def _readiness(loaded: Sequence[Loaded]) -> Family:
    """Of what the server was asked to serve."""
    wanted = [each for each in loaded if each.state is not State.UNLOADED]
    values: dict[Labels, float] = {(each.name, each.version): float(each.state is State.READY) for each in wanted}
    return gauge(
        "model_ready", "1 where a version serves; 0 while it is loaded or unloaded, and if it cannot be loaded", values
    )


def _models(models: dict[Labels, Model]) -> Iterator[Family]:
    infos = {(*k, model.manifest.task, model.precision, ",".join(map(str, model.devices))): 1.0 for k, model in models.items()}
    yield gauge("model_info", "1 for every model that serves", infos, (*LABELS, "task", "precision", "device"))
    yield gauge("model_weights_bytes", "Size of a model's graphs", {k: model.weight_bytes for k, model in models.items()})
    reserved = {(*k, str(device)): size for k, model in models.items() for device, size in model.reserved.items()}
    yield gauge("model_gpu_memory_bytes", "What is reserved for a model on a GPU", reserved, (*LABELS, "device"))


def _gpus(budgets: Mapping[Device, Budget]) -> Iterator[Family]:
    limits: dict[Labels, float] = {}
    reserved: dict[Labels, float] = {}
    for device, budget in budgets.items():
        if budget.limit_bytes is not None:  # the CPU's memory has none
            limits[str(device),], reserved[str(device),] = budget.limit_bytes, budget.reserved_bytes
    yield gauge("gpu_memory_limit_bytes", "What models may reserve on a GPU", limits, ("device",))
    yield gauge("gpu_memory_reserved_bytes", "What they have, those that leave included", reserved, ("device",))
