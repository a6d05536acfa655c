"""Format of log lines."""

import io
import json
import logging
import sys
import threading

import pytest

from triptych_serving.observability import logs
from triptych_serving.observability.logs import CallIds, JsonFormatter, RepeatFilter, TextFormatter, current_ids
from triptych_serving.observability.options import ObservabilityOptions

TRACE = "0af7651916cd43dd8448eb211c80319c"
TEXT, JSON = TextFormatter(), JsonFormatter()


def a_record(message: str, **members: object) -> logging.LogRecord:
    record = logging.LogRecord("triptych_serving.server", logging.INFO, "file.py", 1, message, None, None)
    record.__dict__.update(members)
    return record


@pytest.mark.parametrize(
    ("ids", "message", "fields", "line"),
    [
        (None, "ready", {}, "ready"),
        (CallIds("request-1", TRACE), "failed", {"rows": 3}, f"failed rows=3 [request_id=request-1 trace_id={TRACE}]"),
        (None, "bad\nvalue\r\x1b[31m\x9b31m\u2028", {"peer": "a\nb"}, r"bad\nvalue\r\x1b[31m\x9b31m\u2028 peer=a\nb"),
        (None, "ended", {"principal": "a code=OK", "peer": "ipv6:[::1]:5"}, 'ended principal="a code=OK" peer=ipv6:[::1]:5'),
        (CallIds('x trace_id=1] "y'), "ended", {}, r'ended [request_id="x trace_id=1] \"y"]'),
    ],
    ids=["without a call", "in a call", "control characters", "ambiguous field", "ambiguous id"],
)
def test_text(ids: CallIds | None, message: str, fields: dict[str, object], line: str) -> None:
    token = current_ids.set(ids)
    assert TEXT.format(a_record(message, fields=fields)).endswith(f" INFO triptych_serving.server: {line}")
    current_ids.reset(token)


def test_json_is_one_object_per_line_in_ascii() -> None:
    token = current_ids.set(CallIds("request-1", TRACE))
    line = JSON.format(a_record("two\nlines über\u2028\x9b31m\udc80", fields={"rows": 3, "principal": "名"}))
    current_ids.reset(token)
    assert line.isascii()
    assert "\n" not in line
    values = json.loads(line)
    assert values.pop("time").endswith("+00:00")
    assert values == {
        "level": "info",
        "logger": "triptych_serving.server",
        "message": "two\nlines über\u2028\x9b31m\udc80",
        "request_id": "request-1",
        "trace_id": TRACE,
        "rows": 3,
        "principal": "名",
    }


def test_json_contains_the_traceback() -> None:
    try:
        raise ValueError("wrong")
    except ValueError:
        line = JSON.format(a_record("failed", exc_info=sys.exc_info()))
    assert "\n" not in line
    exception = json.loads(line)["exception"]
    assert exception.startswith("Traceback (most recent call last):\n")
    assert exception.endswith("ValueError: wrong")


@pytest.mark.parametrize("in_thread", [False, True])
def test_uncaught_error_is_logged(in_thread: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSON)
    monkeypatch.setattr(logs.logger, "handlers", [handler])
    error = ValueError("wrong")
    if in_thread:

        def fail() -> None:
            raise error

        monkeypatch.setattr(threading, "excepthook", logs._on_uncaught_in_thread)
        thread = threading.Thread(target=fail, name="worker-7")
        thread.start()
        thread.join()
    else:
        logs._on_uncaught(ValueError, error, None)
    line = json.loads(stream.getvalue())
    assert (line["level"], line["message"]) == ("critical", f"uncaught{' in worker-7' if in_thread else ''}: wrong")
    assert "ValueError: wrong" in line["exception"]


def test_repeated_lines_of_a_library_are_limited() -> None:
    now = 0.0
    repeats = RepeatFilter(lambda: now)

    def passes(name: str, line: int) -> bool:
        return repeats.filter(logging.LogRecord(name, logging.WARNING, "file.py", line, "away", None, None))

    exporter = "opentelemetry.exporter.otlp"
    assert [passes(exporter, 1), passes(exporter, 1), passes(exporter, 2)] == [True, False, True]
    now = 59.0
    assert not passes(exporter, 1)
    now = 60.0
    assert passes(exporter, 1)
    assert all(passes("triptych_serving.server", 1) for _ in range(3))


def test_only_answers_that_came_too_late_are_dropped_of_grpc_errors(capsys: pytest.CaptureFixture[str]) -> None:
    class ExecuteBatchError(Exception):
        """Stand in for cygrpc's class, which has no public name."""

    root = logging.getLogger()
    before, root.handlers = root.handlers, []
    try:
        logs.configure_logs(ObservabilityOptions())
        for kind in (ExecuteBatchError, RuntimeError):
            try:
                raise kind
            except Exception:
                logging.getLogger("grpc._cython.cygrpc").exception("%s in a method", kind.__name__)
    finally:
        root.handlers = before
    printed = capsys.readouterr().err
    assert "RuntimeError in a method" in printed
    assert "ExecuteBatchError" not in printed
