"""Statistics of models."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from triptych_serving.rpc.call_context import ModelUse
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.scheduling.step_stats import StepStats
from triptych_serving.services.oip.statistics import Statistics

CALL: Any = None  # not used


class StubEngine:
    bytes = 1_000

    def __init__(self) -> None:
        self.steps = StepStats()
        self.steps.add(0.01, 4)


class StubModel:
    name, version, weight_bytes = "toy", 1, 500
    engines = (StubEngine(), StubEngine())
    devices: tuple[Device, ...] = (CPU,)
    reserved: Mapping[Device, int] = MappingProxyType({})


def use(**members: Any) -> ModelUse:
    stages = {
        "preprocess": (1.0, 1.5),
        "queue": (1.5, 2.5),
        "prefill": (2.5, 3.0),
        "decode": (3.0, 5.0),
        "postprocess": (5.0, 5.25),
    }
    return ModelUse("toy", "1", **{"rows": 3, "stages": stages, **members})


def counted(statistics: Statistics) -> Any:
    model: Any = StubModel()
    return statistics.message(model)


def test_unused_model() -> None:
    message = counted(Statistics())
    assert (message.name, message.version, message.inference_count, message.last_inference) == ("toy", "1", 0, 0)
    assert message.inference_stats.success.count == 0
    assert len(message.inference_stats.ListFields()) == len(message.inference_stats.DESCRIPTOR.fields)  # JSON has them all
    [memory] = message.memory_usage
    assert (memory.type, memory.byte_size) == ("CPU", 2_500)


def test_gpu_memory_is_the_reserved_memory() -> None:
    model: Any = StubModel()
    model.devices = Device("cuda"), Device("cuda", 1)
    model.reserved = dict.fromkeys(model.devices, 7_000)
    usage = Statistics().message(model).memory_usage
    assert [(memory.type, memory.id, memory.byte_size) for memory in usage] == [("GPU", 0, 7_000), ("GPU", 1, 7_000)]


def test_stages() -> None:
    statistics = Statistics()
    statistics.on_use(CALL, use())
    statistics.on_use(CALL, use(stages={"inference": (1.0, 1.25)}))
    message = counted(statistics)
    stats = message.inference_stats
    assert (message.inference_count, message.execution_count) == (6, 2)
    assert message.last_inference > 1_700_000_000_000
    assert (stats.success.count, stats.success.ns) == (2, 4_500_000_000)
    assert (stats.queue.count, stats.queue.ns) == (2, 1_000_000_000)
    assert stats.compute_input.ns == 500_000_000
    assert stats.compute_infer.ns == 2_750_000_000
    assert stats.compute_output.ns == 250_000_000
    assert (stats.fail.count, stats.cache_hit.count, stats.cache_miss.count) == (0, 0, 0)


@pytest.mark.parametrize("caches", [False, True])
def test_failures_and_cached_responses(caches: bool) -> None:
    statistics = Statistics(caches)
    statistics.on_use(CALL, use())
    statistics.on_use(CALL, use(cached=True, stages={"preprocess": (1.0, 1.5)}))
    statistics.on_use(CALL, use(failed=True, stages={}))
    message = counted(statistics)
    stats = message.inference_stats
    assert (message.inference_count, stats.fail.count) == (3, 1)
    assert (stats.success.count, stats.cache_hit.count, stats.cache_miss.count) == (2, 1, int(caches))
    assert (stats.cache_hit.ns, stats.queue.count) == (500_000_000, 1)
