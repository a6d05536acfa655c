"""The access log: one line per call, failures of engines, and trace ids."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from triptych_serving.errors import EngineError
from triptych_serving.observability.access_log import LogObserver, trace_id_of
from triptych_serving.observability.logs import CallIds, JsonFormatter, current_ids

from .calls import FULL, ROWS, TOKENS_IN, TOKENS_OUT, a_call, a_use, run_call

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"
ACCESS = logging.getLogger("triptych_serving.access")


@pytest.fixture(autouse=True)
def logged() -> Iterator[io.StringIO]:
    """The access log of a test, as JSON."""
    stream, token = io.StringIO(), current_ids.set(None)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    ACCESS.addHandler(handler)
    ACCESS.setLevel(logging.INFO)
    yield stream
    ACCESS.removeHandler(handler)
    ACCESS.setLevel(logging.NOTSET)
    current_ids.reset(token)


def test_call_is_one_line(logged: io.StringIO) -> None:
    call = run_call(LogObserver(trace_id_of, has_access_log=True), metadata={"traceparent": TRACEPARENT}, principal="frontend")
    line = json.loads(logged.getvalue())
    del line["time"]
    assert line == {
        "level": "info",
        "logger": "triptych_serving.access",
        "message": "call ended",
        "request_id": "request-1",
        "trace_id": TRACE,
        "method": FULL,
        "code": "OK",
        "peer": "ipv4:192.0.2.7:1234",
        "principal": "frontend",
        "seconds": round(call.ended - call.arrived, 6),
        "model": "toy",
        "version": "1",
        "rows": ROWS,
        "tokens_in": TOKENS_IN,
        "tokens_out": TOKENS_OUT,
        "queue_seconds": 0.02,
        "cached": 0,
        "failed": 0,
    }


def test_streams_are_summed_and_calls_without_a_model_logged(logged: io.StringIO) -> None:
    observer = LogObserver(trace_id_of, has_access_log=True)
    run_call(observer, uses=5, method_type="bidi_stream")
    run_call(observer, uses=0, code="NOT_FOUND")
    stream, other = map(json.loads, logged.getvalue().splitlines())
    assert stream["rows"] == 5 * ROWS
    assert other["code"] == "NOT_FOUND"
    assert "model" not in other


def test_probes_are_logged_at_level_debug(logged: io.StringIO) -> None:
    observer = LogObserver(trace_id_of, has_access_log=True)
    run_call(observer, service="grpc.health.v1.Health", method="Check", uses=0)
    assert not logged.getvalue()
    ACCESS.setLevel(logging.DEBUG)
    run_call(observer, service="grpc.health.v1.Health", method="Check", uses=0)
    assert json.loads(logged.getvalue())["method"] == "grpc.health.v1.Health/Check"


def test_engine_error_is_logged_with_its_call(logged: io.StringIO) -> None:
    run_call(LogObserver(trace_id_of, has_access_log=False), code="INTERNAL", error=EngineError("the runtime failed: broken"))
    line = json.loads(logged.getvalue())
    assert (line["level"], line["message"]) == ("error", "call failed: the runtime failed: broken")
    assert (line["request_id"], line["method"]) == ("request-1", FULL)


def test_without_lines_only_the_ids_are_set(logged: io.StringIO) -> None:
    run_call(LogObserver(trace_id_of, has_access_log=False))
    assert not logged.getvalue()
    assert current_ids.get() == CallIds("request-1")


@pytest.mark.parametrize(
    ("header", "trace"),
    [
        (TRACEPARENT, TRACE),
        (TRACEPARENT.upper(), ""),
        (TRACEPARENT.replace("00", "ff", 1), ""),
        (TRACEPARENT.replace(TRACE, "0" * 32), ""),
        (f"{TRACEPARENT}x", ""),
        ("00-short-b7ad6b7169203331-01", ""),
        ("", ""),
        (b"bytes", ""),
    ],
)
def test_trace_id_of_the_caller(header: str | bytes, trace: str) -> None:
    assert trace_id_of(a_call(metadata={"traceparent": header})) == trace


def test_work_that_ends_after_its_call_leaves_nothing() -> None:
    observer, call = LogObserver(trace_id_of, has_access_log=True), a_call()
    observer.on_start(call)
    observer.on_end(call)
    observer.on_use(call, a_use(call))
    assert observer._totals == {}
