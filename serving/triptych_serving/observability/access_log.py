"""Observer for the logs: the optional access log with a line for each call, errors of engines, and the ids of calls."""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from triptych_serving.errors import ServingError
from triptych_serving.observability.logs import CallIds, current_ids
from triptych_serving.rpc.call_context import CallContext, ModelUse, Observer

access = logging.getLogger("triptych_serving.access")

# W3C Trace Context: version ff and ids of zeros are invalid.
TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


NUMBERS = ("rows", "tokens_in", "tokens_out", "queue_seconds", "cached", "failed")


@dataclass(slots=True)
class CallTotals:
    """Sums over all inferences of a call; a stream may have thousands."""

    models: dict[str, None] = field(default_factory=dict)  # in order
    versions: dict[str, None] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=lambda: dict.fromkeys(NUMBERS, 0))

    def add(self, use: ModelUse) -> None:
        """Add one inference."""
        self.models[use.model] = self.versions[use.version] = None
        start, end = use.stages.get("queue", (0.0, 0.0))
        more = use.rows, use.tokens_in, use.tokens_out, end - start, use.cached, use.failed
        for name, number in zip(NUMBERS, more, strict=True):
            self.numbers[name] += number

    def fields(self) -> dict[str, Any]:
        """Return the fields of the log line."""
        seconds = round(self.numbers["queue_seconds"], 6)
        return {"model": ",".join(self.models), "version": ",".join(self.versions), **self.numbers, "queue_seconds": seconds}


class LogObserver(Observer):
    """Set the ids of each call for the logs, and log calls that failed in an engine, which itself knows only batches.

    Args:
        trace_id: returns the trace id of a call that has started.
        has_access_log: log a line for each call that has ended.
    """

    def __init__(self, trace_id: Callable[[CallContext], str], has_access_log: bool) -> None:
        self._trace_id = trace_id
        self._has_access_log = has_access_log
        self._totals: dict[CallContext, CallTotals] = {}

    def on_start(self, call: CallContext) -> None:
        current_ids.set(CallIds(call.request_id, self._trace_id(call)))
        if self._has_access_log:
            self._totals[call] = CallTotals()

    def on_use(self, call: CallContext, use: ModelUse) -> None:
        if call in self._totals:  # a model's work may end after its call
            self._totals[call].add(use)

    def on_end(self, call: CallContext) -> None:
        totals = self._totals.pop(call, None)
        if call.code == "INTERNAL" and isinstance(call.error, ServingError):  # other errors are logged where they occur
            access.error("call failed: %s", call.error, extra={"fields": _fields(call)})
        level = logging.DEBUG if call.is_background else logging.INFO
        if self._has_access_log and access.isEnabledFor(level):
            sums = totals.fields() if totals and totals.models else {}
            access.log(level, "call ended", extra={"fields": {**_fields(call), **sums}})


def trace_id_of(call: CallContext) -> str:
    """Return the trace id of the caller's `traceparent` as 32 hexadecimal digits; empty if there is none."""
    given = call.metadata.get("traceparent")
    match = TRACEPARENT.fullmatch(str(given)) if given else None
    return match[1] if match else ""


def _fields(call: CallContext) -> dict[str, Any]:
    fields = {
        "method": call.full_method,
        "code": call.code,
        "peer": unquote(call.peer),
        "principal": call.principal,
        "seconds": round(call.ended - call.arrived, 6),
    }
    return {name: value for name, value in fields.items() if value != ""}
