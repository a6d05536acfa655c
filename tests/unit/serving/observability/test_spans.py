"""Spans: names, times, parents and attributes."""

import time
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler
from opentelemetry.trace import SpanKind, StatusCode

from triptych_serving.errors import InvalidInputError
from triptych_serving.observability.spans import MAX_USES, TracingObserver

from .calls import FULL, ROWS, TOKENS_IN, TOKENS_OUT, a_call, a_use, run_call

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, NOT_SAMPLED = (f"00-{TRACE}-{PARENT}-{flags}" for flags in ("01", "00"))


class Bench:
    """An observer and its finished spans."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=ParentBased(sampler), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.observer = TracingObserver(provider.get_tracer("test"))

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    @property
    def server_span(self) -> ReadableSpan:
        [span] = [span for span in self.spans if span.kind is SpanKind.SERVER]
        return span


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_call_is_a_span(bench: Bench) -> None:
    before = time.time_ns()
    call = run_call(bench.observer)
    span = bench.server_span
    assert span.name == FULL
    assert span.parent is None
    assert span.status.status_code is StatusCode.UNSET
    assert span.attributes == {
        "rpc.system.name": "grpc",
        "rpc.method": FULL,
        "rpc.response.status_code": "OK",
        "network.peer.address": "192.0.2.7",
        "network.peer.port": 1234,
        "triptych.request_id": "request-1",
        "triptych.model.name": "toy",
        "triptych.model.version": "1",
        "triptych.rows": ROWS,
        "triptych.tokens.input": TOKENS_IN,
        "triptych.tokens.output": TOKENS_OUT,
        "triptych.cached": False,
    }
    assert span.start_time is not None
    assert span.end_time is not None
    assert abs(span.start_time - before) < 60e9  # since the epoch, not the monotonic clock
    assert span.end_time - span.start_time == pytest.approx((call.ended - call.arrived) * 1e9, abs=1000)


def test_stages_are_child_spans(bench: Bench) -> None:
    run_call(bench.observer)
    server = bench.server_span
    children = [span for span in bench.spans if span is not server]
    assert server.context is not None
    assert all(span.parent is not None and span.parent.span_id == server.context.span_id for span in children)
    assert server.start_time is not None
    times = {
        span.name: ((span.start_time or 0) - server.start_time, (span.end_time or 0) - server.start_time) for span in children
    }
    expected = {"preprocess": (0, 10), "queue": (10, 30), "prefill": (30, 60), "decode": (60, 100)}
    assert times.keys() == expected.keys()
    for name, (start, end) in expected.items():
        assert times[name] == (pytest.approx(start * 1e6, abs=1000), pytest.approx(end * 1e6, abs=1000))
    assert all(span.attributes and span.attributes["triptych.model.name"] == "toy" for span in children)


@pytest.mark.parametrize(
    ("code", "is_error"),
    [("OK", False), ("CANCELLED", False), ("INVALID_ARGUMENT", False), ("INTERNAL", True), ("UNAVAILABLE", True)],
)
def test_only_server_errors_have_error_status(bench: Bench, code: str, is_error: bool) -> None:
    run_call(bench.observer, code=code)
    span = bench.server_span
    assert span.attributes is not None
    assert span.attributes["rpc.response.status_code"] == code
    assert (span.status.status_code is StatusCode.ERROR) == is_error
    assert span.attributes.get("error.type") == (code if is_error else None)


def test_only_unexpected_errors_are_recorded(bench: Bench) -> None:
    run_call(bench.observer, code="INTERNAL", error=RuntimeError("broken"))
    [event] = bench.server_span.events
    assert event.name == "exception"
    assert event.attributes is not None
    assert event.attributes["exception.message"] == "broken"
    assert bench.server_span.status.description == "broken"
    other = Bench()
    run_call(other.observer, code="INVALID_ARGUMENT", error=InvalidInputError("contents", "there are no texts"))
    assert not other.server_span.events
    assert other.server_span.status.description is None


def test_parent_from_the_caller(bench: Bench) -> None:
    run_call(bench.observer, metadata={"traceparent": SAMPLED, "tracestate": "vendor=value"})
    server = bench.server_span
    assert server.context is not None
    assert server.parent is not None
    assert format(server.context.trace_id, "032x") == TRACE
    assert format(server.parent.span_id, "016x") == PARENT
    assert server.context.trace_state.get("vendor") == "value"
    assert {format(span.context.trace_id, "032x") for span in bench.spans if span.context} == {TRACE}


@pytest.mark.parametrize("header", ["", "nonsense", f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01", b"bytes"])
def test_invalid_header_starts_a_new_trace(bench: Bench, header: str | bytes) -> None:
    run_call(bench.observer, metadata={"traceparent": header})
    assert bench.server_span.parent is None


def test_caller_decides_about_sampling(bench: Bench) -> None:
    run_call(bench.observer, metadata={"traceparent": NOT_SAMPLED})
    assert not bench.spans
    unsampled = Bench(ALWAYS_OFF)
    run_call(unsampled.observer)
    assert not unsampled.spans
    run_call(unsampled.observer, metadata={"traceparent": SAMPLED})
    assert len(unsampled.spans) == 5


def test_trace_id_is_known_while_the_call_runs(bench: Bench) -> None:
    call = a_call(metadata={"traceparent": SAMPLED})
    assert bench.observer.trace_id(call) == ""
    bench.observer.on_start(call)
    assert bench.observer.trace_id(call) == TRACE
    bench.observer.on_end(call)
    assert bench.observer.trace_id(call) == ""


@pytest.mark.parametrize("service", ["grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"])
def test_probes_are_not_traced(bench: Bench, service: str) -> None:
    run_call(bench.observer, service=service, uses=1)
    assert not bench.spans


def test_spans_of_a_long_stream_are_limited(bench: Bench) -> None:
    run_call(bench.observer, uses=MAX_USES + 10, method_type="bidi_stream")
    assert len(bench.spans) == 1 + 4 * MAX_USES
    assert bench.server_span.attributes is not None
    assert "triptych.model.name" not in bench.server_span.attributes  # its messages may be for several


def test_stage_without_end_is_left_out(bench: Bench) -> None:
    call = a_call()
    bench.observer.on_start(call)
    bench.observer.on_use(call, a_use(call, stages={"preprocess": (call.arrived, call.arrived + 1)}, failed=True))
    bench.observer.on_end(call)
    assert [span.name for span in bench.spans] == ["preprocess", FULL]


@pytest.mark.parametrize(
    ("peer", "address"),
    [("ipv4:192.0.2.7:1234", "192.0.2.7"), ("ipv6:%5B::1%5D:1234", "::1"), ("unix:/run/socket", None), ("", None)],
)
def test_peer_address(bench: Bench, peer: str, address: str | None) -> None:
    run_call(bench.observer, peer=peer)
    assert bench.server_span.attributes is not None
    assert bench.server_span.attributes.get("network.peer.address") == address
