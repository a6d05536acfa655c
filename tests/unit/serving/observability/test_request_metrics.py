"""Metrics of requests: counts, labels, and series of unloaded models."""

from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry, disable_created_metrics

from triptych_serving.observability.request_metrics import CODES, KEEP_SECONDS, MAX_METHODS, OTHER_METHOD, MetricsObserver

from .calls import FULL, ROWS, TOKENS_IN, TOKENS_OUT, a_call, a_use, run_call

OF_TOY = {"model": "toy", "version": "1"}
OF_METHOD = {"method": FULL, **OF_TOY}
NO_MODEL = {"method": FULL, "model": "", "version": ""}


@dataclass
class StubModel:
    name: str
    version: int


class Bench:
    """An observer with its registry, clock and loaded models."""

    def __init__(self) -> None:
        disable_created_metrics()
        self.registry = CollectorRegistry()
        self.models = [StubModel("toy", 1)]
        self.now = 0.0
        self.observer = MetricsObserver(self.registry, lambda: self.models, lambda: self.now)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"triptych_{name}", labels)

    def labels(self) -> list[dict[str, str]]:
        return [sample.labels for metric in self.registry.collect() for sample in metric.samples]

    def forget_at(self, now: float) -> None:
        self.now = now
        self.observer.forget()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_call_is_counted_and_timed(bench: Bench) -> None:
    run_call(bench.observer)
    assert bench.value("requests_total", code="OK", **OF_METHOD) == 1
    assert bench.value("inferences_total", **OF_METHOD) == 1
    assert bench.value("inference_failures_total", **OF_METHOD) == 0
    assert bench.value("rows_total", **OF_METHOD) == ROWS
    assert bench.value("prompt_tokens_total", **OF_TOY) == TOKENS_IN
    assert bench.value("generation_tokens_total", **OF_TOY) == TOKENS_OUT
    assert bench.value("cache_hits_total", **OF_TOY) == 0
    assert bench.value("num_calls_active", method=FULL) == 0
    shown = {labels["code"] for labels in bench.labels() if labels.get("model") == "toy" and "code" in labels}
    assert shown == set(CODES)
    stages = {"preprocess": 0.01, "queue": 0.02, "prefill": 0.03, "decode": 0.04}
    times = {f"request_{stage}_time_seconds": seconds for stage, seconds in stages.items()}
    times |= {"time_to_first_token_seconds": 0.06, "time_per_output_token_seconds": 0.04 * ROWS / TOKENS_OUT}
    for name, seconds in times.items():
        assert bench.value(f"{name}_count", **OF_TOY) == 1
        assert bench.value(f"{name}_sum", **OF_TOY) == pytest.approx(seconds)


def test_latency_of_an_active_call(bench: Bench) -> None:
    call = a_call()
    bench.now = call.arrived + 0.25
    bench.observer.on_start(call)
    assert bench.value("num_calls_active", method=FULL) == 1
    bench.observer.on_use(call, a_use(call))
    assert bench.value("e2e_request_latency_seconds_sum", **OF_METHOD) == pytest.approx(0.25)


def test_latency_of_a_stream_message_begins_when_it_is_read(bench: Bench) -> None:
    call = a_call(method_type="bidi_stream")
    bench.observer.on_start(call)
    for late in (5.0, 7.0):
        use = a_use(call, stages={"inference": (call.arrived + late, call.arrived + late + 0.5)}, first_token=0.0)
        bench.now = call.arrived + late + 0.5
        bench.observer.on_use(call, use)
    assert bench.value("e2e_request_latency_seconds_count", **OF_METHOD) == 2
    assert bench.value("e2e_request_latency_seconds_sum", **OF_METHOD) == pytest.approx(1.0)
    assert bench.value("time_to_first_token_seconds_count", **OF_TOY) is None


def test_failed_inference_has_no_times(bench: Bench) -> None:
    run_call(bench.observer, code="CANCELLED")
    assert bench.value("requests_total", code="CANCELLED", **OF_METHOD) == 1
    assert bench.value("inference_failures_total", **OF_METHOD) == 1
    assert bench.value("rows_total", **OF_METHOD) == 0
    assert bench.value("e2e_request_latency_seconds_count", **OF_METHOD) == 0
    assert bench.value("request_queue_time_seconds_count", **OF_TOY) is None


def test_other_calls(bench: Bench) -> None:
    run_call(bench.observer, code="NOT_FOUND", uses=0)
    assert bench.value("requests_total", code="NOT_FOUND", **NO_MODEL) == 1
    run_call(bench.observer, code="DATA_LOSS")  # not in CODES
    assert bench.value("requests_total", code="DATA_LOSS", **OF_METHOD) == 1


def test_expected_methods_begin_at_zero(bench: Bench) -> None:
    bench.observer.expect(["a.B/C"])
    assert bench.value("num_calls_active", method="a.B/C") == 0
    assert all(bench.value("requests_total", **{**NO_MODEL, "method": "a.B/C", "code": code}) == 0 for code in CODES)


def test_number_of_methods_is_bounded(bench: Bench) -> None:
    for number in range(MAX_METHODS + 10):
        run_call(bench.observer, method=f"Made{number}", uses=0)
    methods = {labels["method"] for labels in bench.labels() if "method" in labels}
    assert len(methods) == MAX_METHODS + 1
    assert bench.value("requests_total", method=OTHER_METHOD, model="", version="", code="OK") == 10


def test_labels_reveal_nothing_of_the_caller(bench: Bench) -> None:
    run_call(bench.observer, principal="somebody", metadata={"x-api-key": "secret"})
    assert {name for labels in bench.labels() for name in labels} == {"method", "model", "version", "code", "le"}
    values = {value for labels in bench.labels() for name, value in labels.items() if name not in ("le", "code")}
    assert values == {FULL, "toy", "1", ""}


def test_series_outlive_their_model_for_a_while(bench: Bench) -> None:
    run_call(bench.observer)
    bench.models = []
    bench.forget_at(0.0)
    bench.forget_at(KEEP_SECONDS - 1)
    assert bench.value("requests_total", code="OK", **OF_METHOD) == 1
    bench.forget_at(KEEP_SECONDS)
    assert not [labels for labels in bench.labels() if labels.get("model") == "toy"]
    assert bench.value("requests_total", code="OK", **NO_MODEL) == 0
    run_call(bench.observer)  # ends after its model was forgotten
    bench.forget_at(KEEP_SECONDS)
    assert bench.value("requests_total", code="OK", **OF_METHOD) == 1
    bench.forget_at(2 * KEEP_SECONDS)
    assert not [labels for labels in bench.labels() if labels.get("model") == "toy"]


def test_reloaded_model_keeps_its_series(bench: Bench) -> None:
    run_call(bench.observer)
    loaded, bench.models = bench.models, []
    bench.forget_at(0.0)
    bench.models = loaded
    bench.forget_at(KEEP_SECONDS - 1)
    bench.models = []
    bench.forget_at(KEEP_SECONDS - 1)  # its time begins again
    bench.forget_at(KEEP_SECONDS + 1)
    assert bench.value("requests_total", code="OK", **OF_METHOD) == 1


def test_cached_response_is_a_hit(bench: Bench) -> None:
    call = a_call()
    bench.observer.on_start(call)
    bench.observer.on_use(call, a_use(call, cached=True, stages={}, first_token=0.0, tokens_out=0))
    assert bench.value("cache_hits_total", **OF_TOY) == 1
    assert bench.value("request_queue_time_seconds_count", **OF_TOY) is None
