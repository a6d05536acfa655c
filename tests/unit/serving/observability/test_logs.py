"""How log lines look."""

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator

import pytest

from triptych_serving.errors import EngineError
from triptych_serving.observability import logs
from triptych_serving.observability.calllog import LogObserver
from triptych_serving.observability.current import CallIds, call_now
from triptych_serving.observability.logs import TEXT_FORMAT, JsonFormatter, RepeatFilter, TextFormatter
from triptych_serving.observability.names import trace_id_of

from .calls import FULL, ROWS, TOKENS_IN, TOKENS_OUT, a_call, run_call

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"
TEXT, JSON = TextFormatter(TEXT_FORMAT), JsonFormatter()


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What a logger of this test writes, as JSON."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSON)
    loggers = [logging.getLogger(name) for name in ("triptych_serving.access", logs.__name__)]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield stream
    for logger in loggers:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


@pytest.fixture
def in_call() -> Iterator[None]:
    token = call_now.set(CallIds("request-1", TRACE))
    yield
    call_now.reset(token)


def a_record(message: str, **members: object) -> logging.LogRecord:
    record = logging.LogRecord("triptych_serving.server", logging.INFO, "file.py", 1, message, None, None)
    record.__dict__.update(members)
    return record


def test_text_without_a_call() -> None:
    assert TEXT.format(a_record("ready")).endswith(" INFO triptych_serving.server: ready")


@pytest.mark.usefixtures("in_call")
def test_text_ends_with_the_ids_of_the_call() -> None:
    line = TEXT.format(a_record("failed", fields={"rows": 3}))
    assert line.endswith(f" INFO triptych_serving.server: failed rows=3 [request_id=request-1 trace_id={TRACE}]")


def test_what_callers_send_makes_no_lines_of_its_own() -> None:
    line = TEXT.format(a_record("bad\nvalue\r\x1b[31m", fields={"peer": "a\nb"}))
    assert line.endswith(": bad\\nvalue\\r\\x1b[31m peer=a\\nb")


@pytest.mark.usefixtures("in_call")
def test_json_is_one_object_a_line() -> None:
    line = JSON.format(a_record("two\nlines", fields={"rows": 3}))
    assert "\n" not in line
    values = json.loads(line)
    assert values.pop("time").endswith("+00:00")
    assert values == {
        "level": "info",
        "logger": "triptych_serving.server",
        "message": "two\nlines",
        "request_id": "request-1",
        "trace_id": TRACE,
        "rows": 3,
    }


def test_json_has_the_traceback_inside() -> None:
    try:
        raise ValueError("wrong")
    except ValueError:
        line = JSON.format(a_record("failed", exc_info=sys.exc_info()))
    assert "\n" not in line
    exception = json.loads(line)["exception"]
    assert exception.startswith("Traceback (most recent call last):\n")
    assert exception.endswith("ValueError: wrong")


def test_an_uncaught_error_is_json(logged: io.StringIO) -> None:
    try:
        raise ValueError("wrong")
    except ValueError as error:
        logs._on_uncaught(ValueError, error, error.__traceback__)
    line = json.loads(logged.getvalue())
    assert (line["level"], line["message"]) == ("critical", "uncaught: wrong")
    assert "ValueError: wrong" in line["exception"]


def test_an_uncaught_error_of_a_thread_is_json(logged: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ValueError("wrong")

    monkeypatch.setattr(threading, "excepthook", logs._on_uncaught_in_thread)
    thread = threading.Thread(target=fail, name="worker-7")
    thread.start()
    thread.join()
    line = json.loads(logged.getvalue())
    assert line["message"] == "uncaught in worker-7: wrong"
    assert "ValueError: wrong" in line["exception"]


def test_a_call_is_one_line(logged: io.StringIO) -> None:
    rpc = run_call(LogObserver(trace_id_of, lines=True), metadata={"traceparent": TRACEPARENT}, principal="frontend")
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
        "seconds": round(rpc.ended - rpc.arrived, 6),
        "model": "toy",
        "version": "1",
        "rows": ROWS,
        "tokens_in": TOKENS_IN,
        "tokens_out": TOKENS_OUT,
        "queue_seconds": 0.02,
        "cached": 0,
        "failed": 0,
    }


def test_all_messages_of_a_stream_are_summed(logged: io.StringIO) -> None:
    run_call(LogObserver(trace_id_of, lines=True), uses=5, method_type="bidi_stream")
    assert json.loads(logged.getvalue())["rows"] == 5 * ROWS


def test_a_call_without_a_model_is_a_line_too(logged: io.StringIO) -> None:
    run_call(LogObserver(trace_id_of, lines=True), uses=0, code="NOT_FOUND")
    line = json.loads(logged.getvalue())
    assert line["code"] == "NOT_FOUND"
    assert "model" not in line


def test_probes_are_for_debugging(logged: io.StringIO) -> None:
    observer = LogObserver(trace_id_of, lines=True)
    run_call(observer, service="grpc.health.v1.Health", method="Check", uses=0)
    assert not logged.getvalue()
    logging.getLogger("triptych_serving.access").setLevel(logging.DEBUG)
    run_call(observer, service="grpc.health.v1.Health", method="Check", uses=0)
    assert json.loads(logged.getvalue())["method"] == "grpc.health.v1.Health/Check"


def test_a_failure_of_the_runtime_is_logged_with_its_call(logged: io.StringIO) -> None:
    run_call(LogObserver(trace_id_of, lines=False), code="INTERNAL", error=EngineError("the runtime failed: broken"))
    line = json.loads(logged.getvalue())
    assert (line["level"], line["message"]) == ("error", "call failed: the runtime failed: broken")
    assert (line["request_id"], line["method"]) == ("request-1", FULL)


def test_no_lines_unless_asked_for(logged: io.StringIO) -> None:
    run_call(LogObserver(trace_id_of, lines=False))
    assert not logged.getvalue()
    assert call_now.get() == CallIds("request-1")


@pytest.mark.parametrize(
    ("header", "trace"),
    [
        (TRACEPARENT, TRACE),
        (TRACEPARENT.upper(), ""),
        ("00-short-b7ad6b7169203331-01", ""),
        ("", ""),
        (b"bytes", ""),
    ],
)
def test_the_trace_of_a_caller(header: str | bytes, trace: str) -> None:
    assert trace_id_of(a_call(metadata={"traceparent": header})) == trace


def test_what_a_library_repeats_is_said_once_in_a_while() -> None:
    now = 0.0
    repeats = RepeatFilter("opentelemetry", 60.0, lambda: now)

    def passes(name: str, line: int) -> bool:
        return repeats.filter(logging.LogRecord(name, logging.WARNING, "file.py", line, "away", None, None))

    exporter = "opentelemetry.exporter.otlp"
    assert [passes(exporter, 1), passes(exporter, 1), passes(exporter, 2)] == [True, False, True]
    now = 59.0
    assert not passes(exporter, 1)
    now = 60.0
    assert passes(exporter, 1)
    assert all(passes("triptych_serving.server", 1) for _ in range(3))


def test_work_that_ends_behind_its_call_leaves_nothing(logged: io.StringIO) -> None:
    observer, rpc = LogObserver(trace_id_of, lines=True), a_call()
    observer.on_start(rpc)
    observer.on_end(rpc)
    observer.on_use(rpc, FULL)
    assert observer._totals == {}
