"""Metrics of requests: what is counted, under which labels, and what becomes of those of models that are gone."""

from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry, disable_created_metrics

from triptych_serving.observability.names import CODES
from triptych_serving.observability.requestmetrics import KEEP_SECONDS, MAX_METHODS, OTHER_METHOD, MetricsObserver

from .calls import FULL, ROWS, TOKENS_IN, TOKENS_OUT, a_call, a_use, run_call

OF_TOY = {"model": "toy", "version": "1"}
OF_METHOD = {"method": FULL, **OF_TOY}


@dataclass
class Stub:
    """As much of a model as labels need."""

    name: str
    version: int


class Bench:
    """An observer, and what it shows."""

    def __init__(self) -> None:
        disable_created_metrics()
        self.registry = CollectorRegistry()
        self.models = [Stub("toy", 1)]
        self.now = 0.0
        self.observer = MetricsObserver(self.registry, lambda: self.models, lambda: self.now)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"triptych_{name}", labels)

    def labels(self) -> list[dict[str, str]]:
        return [sample.labels for metric in self.registry.collect() for sample in metric.samples]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_call_is_counted_once(bench: Bench) -> None:
    run_call(bench.observer)
    assert bench.value("requests_total", code="OK", **OF_METHOD) == 1
    assert bench.value("inferences_total", **OF_METHOD) == 1
    assert bench.value("inference_failures_total", **OF_METHOD) == 0
    assert bench.value("rows_total", **OF_METHOD) == ROWS
    assert bench.value("prompt_tokens_total", **OF_TOY) == TOKENS_IN
    assert bench.value("generation_tokens_total", **OF_TOY) == TOKENS_OUT
    assert bench.value("cache_hits_total", **OF_TOY) == 0
    assert bench.value("num_calls_active", method=FULL) == 0


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("request_preprocess_time_seconds", 0.01),
        ("request_queue_time_seconds", 0.02),
        ("request_prefill_time_seconds", 0.03),
        ("request_decode_time_seconds", 0.04),
        ("time_to_first_token_seconds", 0.06),
        ("time_per_output_token_seconds", 0.04 * ROWS / TOKENS_OUT),
    ],
)
def test_every_stage_has_a_histogram(bench: Bench, name: str, seconds: float) -> None:
    run_call(bench.observer)
    assert bench.value(f"{name}_count", **OF_TOY) == 1
    assert bench.value(f"{name}_sum", **OF_TOY) == pytest.approx(seconds)


def test_the_whole_takes_until_now(bench: Bench) -> None:
    rpc = a_call()
    bench.now = rpc.arrived + 0.25
    bench.observer.on_start(rpc)
    bench.observer.on_use(rpc, a_use(rpc))
    assert bench.value("e2e_request_latency_seconds_sum", **OF_METHOD) == pytest.approx(0.25)


def test_a_message_of_a_stream_begins_when_it_is_read(bench: Bench) -> None:
    rpc = a_call(method_type="bidi_stream")
    bench.observer.on_start(rpc)
    for late in (5.0, 7.0):
        use = a_use(rpc, stages={"inference": (rpc.arrived + late, rpc.arrived + late + 0.5)}, first_token=0.0)
        bench.now = rpc.arrived + late + 0.5
        bench.observer.on_use(rpc, use)
    assert bench.value("e2e_request_latency_seconds_count", **OF_METHOD) == 2
    assert bench.value("e2e_request_latency_seconds_sum", **OF_METHOD) == pytest.approx(1.0)
    assert bench.value("time_to_first_token_seconds_count", **OF_TOY) is None


def test_work_that_failed_has_no_times(bench: Bench) -> None:
    run_call(bench.observer, code="CANCELLED")
    assert bench.value("requests_total", code="CANCELLED", **OF_METHOD) == 1
    assert bench.value("inference_failures_total", **OF_METHOD) == 1
    assert bench.value("rows_total", **OF_METHOD) == 0
    assert bench.value("e2e_request_latency_seconds_count", **OF_METHOD) == 0
    assert bench.value("request_queue_time_seconds_count", **OF_TOY) is None


def test_a_call_without_a_model_has_empty_labels(bench: Bench) -> None:
    run_call(bench.observer, code="NOT_FOUND", uses=0)
    assert bench.value("requests_total", method=FULL, model="", version="", code="NOT_FOUND") == 1


def test_all_codes_of_a_model_are_there_with_the_first(bench: Bench) -> None:
    run_call(bench.observer)
    shown = {labels["code"] for labels in bench.labels() if labels.get("model") == "toy" and "code" in labels}
    assert shown == set(CODES)


def test_a_code_that_nobody_expects_is_counted(bench: Bench) -> None:
    run_call(bench.observer, code="DATA_LOSS")
    assert bench.value("requests_total", code="DATA_LOSS", **OF_METHOD) == 1


def test_expected_methods_begin_at_zero(bench: Bench) -> None:
    bench.observer.expect(["a.B/C"])
    assert bench.value("num_calls_active", method="a.B/C") == 0
    assert all(bench.value("requests_total", method="a.B/C", model="", version="", code=code) == 0 for code in CODES)


def test_a_call_that_runs_is_active(bench: Bench) -> None:
    bench.observer.on_start(a_call())
    assert bench.value("num_calls_active", method=FULL) == 1


def test_methods_are_bounded(bench: Bench) -> None:
    for number in range(MAX_METHODS + 10):
        run_call(bench.observer, method=f"Made{number}", uses=0)
    methods = {labels["method"] for labels in bench.labels() if "method" in labels}
    assert len(methods) == MAX_METHODS + 1
    assert bench.value("requests_total", method=OTHER_METHOD, model="", version="", code="OK") == 10


def test_labels_are_names_that_the_server_knows(bench: Bench) -> None:
    run_call(bench.observer, principal="somebody", metadata={"x-api-key": "secret"})
    assert {name for labels in bench.labels() for name in labels} == {"method", "model", "version", "code", "le"}
    values = {value for labels in bench.labels() for name, value in labels.items() if name not in ("le", "code")}
    assert values == {FULL, "toy", "1", ""}


def test_series_outlive_their_model_for_a_while(bench: Bench) -> None:
    run_call(bench.observer)
    bench.models = []
    bench.observer.forget()
    bench.now = KEEP_SECONDS - 1
    bench.observer.forget()
    assert bench.value("requests_total", code="OK", **OF_METHOD) == 1
    bench.now = KEEP_SECONDS
    bench.observer.forget()
    assert not [labels for labels in bench.labels() if labels.get("model") == "toy"]
    assert bench.value("requests_total", method=FULL, model="", version="", code="OK") == 0


def test_a_model_that_comes_back_keeps_its_series(bench: Bench) -> None:
    run_call(bench.observer)
    there, bench.models = bench.models, []
    bench.observer.forget()
    bench.models, bench.now = there, KEEP_SECONDS - 1
    bench.observer.forget()
    bench.models = []
    bench.observer.forget()  # its time begins anew
    bench.now = KEEP_SECONDS + 1
    bench.observer.forget()
    assert bench.value("requests_total", code="OK", **OF_METHOD) == 1


def test_calls_that_end_after_their_model_was_forgotten_are_forgotten_too(bench: Bench) -> None:
    bench.models = []
    run_call(bench.observer)
    bench.observer.forget()
    bench.now = KEEP_SECONDS
    bench.observer.forget()
    run_call(bench.observer)
    assert bench.value("requests_total", code="OK", **OF_METHOD) == 1
    bench.observer.forget()
    bench.now = 2 * KEEP_SECONDS
    bench.observer.forget()
    assert not [labels for labels in bench.labels() if labels.get("model") == "toy"]


def test_an_answer_from_the_cache_is_a_hit(bench: Bench) -> None:
    rpc = a_call()
    bench.observer.on_start(rpc)
    bench.observer.on_use(rpc, a_use(rpc, cached=True, stages={}, first_token=0.0, tokens_out=0))
    assert bench.value("cache_hits_total", **OF_TOY) == 1
    assert bench.value("request_queue_time_seconds_count", **OF_TOY) is None
