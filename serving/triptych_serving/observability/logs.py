"""Format of log lines: text or JSON, with the ids of the call that a line belongs to."""

import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from triptych_serving.observability.options import JSON, ObservabilityOptions

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
REPEATING_LOGGERS = "opentelemetry."  # its exporter repeats a line over and over while the collector is down
REPEAT_SECONDS = 60.0
AMBIGUOUS = re.compile('[ \xa0"=]')  # in the value of a field
# Control characters and line separators of Unicode.
CONTROLS = {code: ascii(chr(code))[1:-1] for code in (*range(32), *range(127, 160), 0x2028, 0x2029)}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CallIds:
    """The ids of a call in the logs."""

    request_id: str
    trace_id: str = ""  # 32 hexadecimal digits; empty without tracing

    def fields(self) -> dict[str, str]:
        """Return the ids that are set, by name."""
        trace = {"trace_id": self.trace_id} if self.trace_id else {}
        return {"request_id": self.request_id, **trace}


current_ids: ContextVar[CallIds | None] = ContextVar("current_ids", default=None)


def configure_logs(options: ObservabilityOptions, always: Mapping[str, object] | None = None) -> None:
    """Set up logging of this process to standard error. For the command that starts a server.

    `always`: fields of every line, before the ids of its call.
    """
    handler = logging.StreamHandler()
    handler.addFilter(RepeatFilter())
    handler.addFilter(_is_not_late_answer)
    handler.setFormatter(JsonFormatter(always) if options.log_format == JSON else TextFormatter(always))
    logging.basicConfig(level=options.log_level.upper(), handlers=[handler])
    if options.log_format == JSON:
        logging.captureWarnings(True)
        sys.excepthook = _on_uncaught
        threading.excepthook = _on_uncaught_in_thread


class TextFormatter(logging.Formatter):
    """Format `2026-01-31 12:00:00,000 INFO logger: message field=value [request_id=...]`, one line except for tracebacks."""

    def __init__(self, always: Mapping[str, object] | None = None) -> None:
        super().__init__(TEXT_FORMAT)
        self._always = always or {}

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        fields, ids = getattr(record, "fields", {}), {**self._always, **_ids()}
        line = " ".join([super().formatMessage(record), *_pairs(fields)])
        line += f" [{' '.join(_pairs(ids))}]" if ids else ""
        return line.translate(CONTROLS)  # values from callers must not forge lines of the log


class JsonFormatter(logging.Formatter):
    """Format one object per line: time, level, logger, message, ids of the call, `fields` of the record, exception."""

    def __init__(self, always: Mapping[str, object] | None = None) -> None:
        super().__init__()
        self._always = always or {}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._always,
            **_ids(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)  # in ASCII: whole lines on every terminal and in every encoding


class RepeatFilter(logging.Filter):
    """Pass a record of the same source line of OpenTelemetry once in REPEAT_SECONDS."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._next: dict[tuple[str, int], float] = {}  # by file and line

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(REPEATING_LOGGERS):
            return True
        source, now = (record.pathname, record.lineno), self._clock()
        if now < self._next.get(source, now):
            return False
        self._next[source] = now + REPEAT_SECONDS
        return True


def _is_not_late_answer(record: logging.LogRecord) -> bool:
    """Drop gRPC's traceback of an answer that it could not send because the caller's deadline had passed a moment before."""
    kind = record.exc_info[0] if record.exc_info else None
    return not (record.name.startswith("grpc.") and kind is not None and kind.__name__ == "ExecuteBatchError")


def _on_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    logger.critical("uncaught: %s", error, exc_info=(kind, error, trace))


def _on_uncaught_in_thread(arguments: threading.ExceptHookArgs) -> None:
    if arguments.exc_value is not None:
        name = arguments.thread.name if arguments.thread else "a thread"
        error = arguments.exc_value
        logger.critical("uncaught in %s: %s", name, error, exc_info=(arguments.exc_type, error, arguments.exc_traceback))


def _ids() -> dict[str, str]:
    """Return the ids of the call that a line belongs to."""
    ids = current_ids.get()
    return {} if ids is None else ids.fields()


def _pairs(values: Mapping[str, object]) -> list[str]:
    """Return `name=value` of each; a value that could be taken for several is quoted."""
    texts = ((name, str(value)) for name, value in values.items())
    return [f"{name}={json.dumps(text, ensure_ascii=False) if AMBIGUOUS.search(text) else text}" for name, text in texts]
