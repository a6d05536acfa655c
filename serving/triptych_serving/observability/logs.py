"""How log lines look: text for people, JSON for machines; every line of a request has its id."""

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from triptych_serving.observability.current import call_now
from triptych_serving.observability.options import JSON, ObservabilityOptions

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
NOISY = "opentelemetry"  # its exporter says the same again and again while the collector is away
REPEAT_SECONDS = 60.0
CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), 127)} | {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}

logger = logging.getLogger(__name__)


def configure_logs(options: ObservabilityOptions) -> None:
    """Let this process log to standard error, as the options say. For the command that starts it."""
    handler = logging.StreamHandler()
    handler.addFilter(RepeatFilter(NOISY, REPEAT_SECONDS))
    handler.setFormatter(JsonFormatter() if options.log_format == JSON else TextFormatter(TEXT_FORMAT))
    logging.basicConfig(level=options.log_level.upper(), handlers=[handler])
    if options.log_format == JSON:
        logging.captureWarnings(True)
        sys.excepthook = _on_uncaught
        threading.excepthook = _on_uncaught_in_thread


class TextFormatter(logging.Formatter):
    """`2026-01-31 12:00:00,000 INFO name.of.logger: message field=value [request_id=...]`: one line, a traceback aside."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        fields, ids = getattr(record, "fields", {}), call_now.get()
        line = " ".join([super().formatMessage(record), *_pairs(fields)])
        line += f" [{' '.join(_pairs(ids.fields()))}]" if ids else ""
        return line.translate(CONTROLS)  # what callers send shall not look like lines of its own


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, the ids of the call, a record's own `fields`, exception."""

    def format(self, record: logging.LogRecord) -> str:
        ids = call_now.get()
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **({} if ids is None else ids.fields()),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class RepeatFilter(logging.Filter):
    """Lets each message of a library pass once in a while.

    Args:
        name: of its loggers, the first part.
        seconds: between two of the same, whatever their arguments.
        clock: monotonic seconds.
    """

    def __init__(self, name: str, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._prefix = f"{name}."
        self._seconds = seconds
        self._clock = clock
        self._next: dict[tuple[str, int], float] = {}  # by file and line: few

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(self._prefix):
            return True
        place, now = (record.pathname, record.lineno), self._clock()
        if now < self._next.get(place, now):
            return False
        self._next[place] = now + self._seconds
        return True


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


def _pairs(values: Mapping[str, object]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]
