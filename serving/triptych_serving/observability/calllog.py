"""What logs say of calls: their ids in every line, and on request a line for each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from triptych_serving.errors import ServingError
from triptych_serving.observability.current import CallIds, call_now
from triptych_serving.observability.names import is_background, method_of

if TYPE_CHECKING:
    from triptych_serving.rpc.call_context import CallContext, ModelUse

access = logging.getLogger("triptych_serving.access")


@dataclass(slots=True)
class Totals:
    """Of all inferences of a call: a stream of requests may have thousands."""

    models: dict[str, None] = field(default_factory=dict)  # in order
    versions: dict[str, None] = field(default_factory=dict)
    rows: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    queue_seconds: float = 0.0
    cached: int = 0
    failed: int = 0

    def add(self, use: ModelUse) -> None:
        """One more."""
        self.models[use.model] = self.versions[use.version] = None
        self.rows += use.rows
        self.tokens_in += use.tokens_in
        self.tokens_out += use.tokens_out
        start, end = use.stages.get("queue", (0.0, 0.0))
        self.queue_seconds += end - start
        self.cached += use.cached
        self.failed += use.failed

    def fields(self) -> dict[str, Any]:
        """As the line has them."""
        return {
            "model": ",".join(self.models),
            "version": ",".join(self.versions),
            "rows": self.rows,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "queue_seconds": round(self.queue_seconds, 6),
            "cached": self.cached,
            "failed": self.failed,
        }


class LogObserver:
    """Notes the ids of each call, and logs those that failed in an engine: the engine itself knows batches alone.

    Args:
        trace_id: finds that of a call that has begun.
        lines: whether to log one for each call that has ended.
    """

    def __init__(self, trace_id: Callable[[CallContext], str], lines: bool) -> None:
        self._trace_id = trace_id
        self._lines = lines
        self._totals: dict[CallContext, Totals] = {}

    def on_start(self, rpc: CallContext) -> None:
        call_now.set(CallIds(rpc.request_id, self._trace_id(rpc)))
        if self._lines:
            self._totals[rpc] = Totals()

    def on_use(self, rpc: CallContext, use: ModelUse) -> None:
        if rpc in self._totals:  # else the call has ended already
            self._totals[rpc].add(use)

    def on_end(self, rpc: CallContext) -> None:
        totals = self._totals.pop(rpc, None)
        if rpc.code == "INTERNAL" and isinstance(rpc.error, ServingError):  # others are logged where they are met
            access.error("call failed: %s", rpc.error, extra={"fields": _fields(rpc)})
        level = logging.DEBUG if is_background(rpc) else logging.INFO
        if self._lines and access.isEnabledFor(level):
            access.log(
                level, "call ended", extra={"fields": {**_fields(rpc), **(totals.fields() if totals and totals.models else {})}}
            )


def _fields(rpc: CallContext) -> dict[str, Any]:
    """What every line says; seconds in microseconds."""
    fields = {
        "method": method_of(rpc),
        "code": rpc.code,
        "peer": unquote(rpc.peer),
        "principal": rpc.principal,
        "seconds": round(rpc.ended - rpc.arrived, 6),
    }
    return {name: value for name, value in fields.items() if value != ""}
