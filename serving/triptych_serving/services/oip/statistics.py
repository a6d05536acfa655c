"""Statistics of models for ModelStatistics, from the requests of all services."""

import time
from collections import defaultdict
from dataclasses import dataclass, field

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.models.model import Model
from triptych_serving.rpc.call_context import CallContext, ModelUse, Observer
from triptych_serving.runtime.device import CPU

# Stages of the protocol -> stages of a ModelUse.
STAGES = {
    "queue": ("queue",),
    "compute_input": ("preprocess",),
    "compute_infer": ("inference", "prefill", "decode"),
    "compute_output": ("postprocess",),
}


@dataclass(slots=True)
class DurationSum:
    """Number and total of durations."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Add a duration."""
        self.count += 1
        self.seconds += seconds

    def message(self) -> pb.StatisticDuration:
        """Convert to a message."""
        return pb.StatisticDuration(count=self.count, ns=round(self.seconds * 1e9))


@dataclass(slots=True)
class _VersionStatistics:
    last: int = 0  # milliseconds since the epoch
    inferences: int = 0
    computed: int = 0  # requests
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # of computed requests, by stage
    durations: dict[str, DurationSum] = field(default_factory=lambda: defaultdict(DurationSum))  # by name in InferStatistics


class Statistics(Observer):
    """Observe the work of models; count misses of a response cache, if in use. Not thread-safe: for the event loop only."""

    def __init__(self, counts_misses: bool = False) -> None:
        self._counts_misses = counts_misses
        self._versions: defaultdict[tuple[str, str], _VersionStatistics] = defaultdict(_VersionStatistics)

    def on_use(self, call: CallContext, use: ModelUse) -> None:
        version, seconds = self._versions[use.model, use.version], _seconds(use)
        version.last = time.time_ns() // 1_000_000
        if use.failed:
            version.durations["fail"].add(seconds)
            return
        version.durations["success"].add(seconds)
        if use.cached:
            version.durations["cache_hit"].add(seconds)
            return
        if self._counts_misses:
            version.durations["cache_miss"].add(seconds)
        version.inferences += use.rows
        version.computed += 1
        for stage, (start, end) in use.stages.items():
            version.seconds[stage] += end - start

    def message(self, model: Model) -> pb.ModelStatistics:
        """Convert the statistics of one version to a message."""
        version = self._versions[model.name, str(model.version)]
        durations = {name: DurationSum() for name in pb.InferStatistics.DESCRIPTOR.fields_by_name} | version.durations
        if version.computed:
            sums = {name: sum(version.seconds[stage] for stage in stages) for name, stages in STAGES.items()}
            durations |= {name: DurationSum(version.computed, seconds) for name, seconds in sums.items()}
        return pb.ModelStatistics(
            name=model.name,
            version=str(model.version),
            last_inference=version.last,
            inference_count=version.inferences,
            execution_count=sum(engine.steps.seconds.count for engine in model.engines),
            inference_stats=pb.InferStatistics(**{name: one.message() for name, one in durations.items()}),
            memory_usage=_memory(model),
        )


def _seconds(use: ModelUse) -> float:
    """Return the time from the start of the first stage to the end of the last."""
    if not use.stages:
        return 0.0
    stages = use.stages.values()
    return max([end for _, end in stages]) - min([start for start, _ in stages])


def _memory(model: Model) -> list[pb.MemoryUsage]:
    """Return the memory of weights and caches."""
    if CPU in model.devices:
        return [pb.MemoryUsage(type="CPU", byte_size=model.weight_bytes + sum(engine.bytes for engine in model.engines))]
    return [pb.MemoryUsage(type="GPU", id=gpu.index, byte_size=size) for gpu, size in model.reserved.items()]
