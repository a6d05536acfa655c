"""What models have done so far, whichever service asked them."""

import time
from collections import defaultdict
from dataclasses import dataclass, field

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.models.model import Model
from triptych_serving.rpc.call_context import CallContext, ModelUse
from triptych_serving.runtime.device import CPU

# The protocol's stages, and what the server calls them.
STAGES = {
    "queue": ("queue",),
    "compute_input": ("preprocess",),
    "compute_infer": ("inference", "prefill", "decode"),
    "compute_output": ("postprocess",),
}
NEVER = 0.0, 0.0


@dataclass(slots=True)
class Duration:
    """How often, and how long together."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self.count += 1
        self.seconds += seconds

    def message(self) -> pb.StatisticDuration:
        return pb.StatisticDuration(count=self.count, ns=round(self.seconds * 1e9))


@dataclass(slots=True)
class _Tally:
    """One version of one model."""

    last: int = 0  # milliseconds since the epoch
    inferences: int = 0
    durations: dict[str, Duration] = field(default_factory=lambda: defaultdict(Duration))  # by the name in InferStatistics


class Statistics:
    """Observes all calls. Used in the event loop alone.

    Args:
        caches: answers may come from a cache, so that misses count.
    """

    def __init__(self, caches: bool = False) -> None:
        self._caches = caches
        self._tallies: defaultdict[tuple[str, str], _Tally] = defaultdict(_Tally)

    def on_start(self, rpc: CallContext) -> None:
        """Nothing is counted before a model has worked."""

    def on_use(self, rpc: CallContext, use: ModelUse) -> None:
        """One request of a model, or one message of a stream."""
        tally, seconds = self._tallies[use.model, use.version], _seconds(use)
        tally.last = time.time_ns() // 1_000_000
        if use.failed:
            tally.durations["fail"].add(seconds)
            return
        tally.durations["success"].add(seconds)
        if use.cached:
            tally.durations["cache_hit"].add(seconds)
            return
        if self._caches:
            tally.durations["cache_miss"].add(seconds)
        tally.inferences += use.rows
        for name, stages in STAGES.items():
            seconds = 0.0
            for stage in stages:
                start, end = use.stages.get(stage, NEVER)
                seconds += end - start
            tally.durations[name].add(seconds)

    def on_end(self, rpc: CallContext) -> None:
        """A call without a model is no inference."""

    def message(self, model: Model) -> pb.ModelStatistics:
        """Of one version."""
        tally = self._tallies[model.name, str(model.version)]
        return pb.ModelStatistics(
            name=model.name,
            version=str(model.version),
            last_inference=tally.last,
            inference_count=tally.inferences,
            execution_count=sum(engine.steps.seconds.count for engine in model.engines),
            inference_stats=pb.InferStatistics(**{name: one.message() for name, one in tally.durations.items()}),
            memory_usage=_memory(model),
        )


def _seconds(use: ModelUse) -> float:
    """From its first stage's beginning to its last one's end."""
    if not use.stages:
        return 0.0
    starts, ends = zip(*use.stages.values(), strict=True)
    return float(max(ends) - min(starts))


def _memory(model: Model) -> list[pb.MemoryUsage]:
    """Weights and caches."""
    if CPU in model.devices:
        return [pb.MemoryUsage(type="CPU", byte_size=model.weight_bytes + sum(engine.bytes for engine in model.engines))]
    return [pb.MemoryUsage(type="GPU", id=gpu.index, byte_size=size) for gpu, size in model.reserved.items()]
