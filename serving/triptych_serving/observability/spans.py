"""A span for each call, after OpenTelemetry's conventions for RPC, with a child for each stage of each model's work."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, format_trace_id, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from triptych_serving.observability.names import is_background, method_of

if TYPE_CHECKING:
    from triptych_serving.rpc.call_context import CallContext, ModelUse

# The server's fault, as the conventions for gRPC have it.
ERRORS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})
UNFORESEEN = frozenset({"UNKNOWN", "INTERNAL"})  # these show their exception
MAX_USES = 64  # of a stream of requests, the first ones have spans
PROPAGATOR = TraceContextTextMapPropagator()


@dataclass(slots=True)
class Traced:
    """A call that has begun."""

    span: Span
    context: Context  # for its children
    offset: int  # nanoseconds from the monotonic clock to the epoch
    uses: int = 0


class TracingObserver:
    """Makes the spans.

    Args:
        tracer: knows where they go.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._traced: dict[CallContext, Traced] = {}

    def trace_id(self, rpc: CallContext) -> str:
        """Of a call that has begun; empty where it is not traced."""
        traced = self._traced.get(rpc)
        return format_trace_id(traced.span.get_span_context().trace_id) if traced else ""

    def on_start(self, rpc: CallContext) -> None:
        if is_background(rpc):
            return
        offset = time.time_ns() - time.monotonic_ns()
        span = self._tracer.start_span(
            method_of(rpc),
            PROPAGATOR.extract(_carrier(rpc), Context()),
            SpanKind.SERVER,
            _about(rpc),
            start_time=_nanoseconds(rpc.arrived, offset),
        )
        self._traced[rpc] = Traced(span, set_span_in_context(span, Context()), offset)

    def on_use(self, rpc: CallContext, use: ModelUse) -> None:
        traced = self._traced.get(rpc)
        if traced is None or not traced.span.is_recording():
            return
        traced.uses += 1
        if traced.uses > MAX_USES:
            return
        model = {"triptych.model.name": use.model, "triptych.model.version": use.version}
        if rpc.method_type != "bidi_stream":
            traced.span.set_attributes({**model, **_work(use)})
        for stage, (start, end) in use.stages.items():
            began, ended = _nanoseconds(start, traced.offset), _nanoseconds(end, traced.offset)
            child = self._tracer.start_span(stage, traced.context, attributes=model, start_time=began)
            child.end(max(began, ended))

    def on_end(self, rpc: CallContext) -> None:
        traced = self._traced.pop(rpc, None)
        if traced is None:
            return
        span = traced.span
        span.set_attribute("rpc.response.status_code", rpc.code)
        if rpc.code in ERRORS:
            span.set_attribute("error.type", rpc.code)
            span.set_status(Status(StatusCode.ERROR, str(rpc.error or "") or None))
        if rpc.error is not None and rpc.code in UNFORESEEN:
            span.record_exception(rpc.error)
        span.end(_nanoseconds(rpc.ended, traced.offset))


def _carrier(rpc: CallContext) -> dict[str, str]:
    metadata = rpc.metadata
    return {name: str(metadata[name]) for name in ("traceparent", "tracestate") if name in metadata}


def _about(rpc: CallContext) -> dict[str, Any]:
    about: dict[str, Any] = {
        "rpc.system.name": "grpc",
        "rpc.method": method_of(rpc),
        "triptych.request_id": rpc.request_id,
    }
    kind, _, address = unquote(rpc.peer).partition(":")
    host, _, port = address.rpartition(":")
    if kind in ("ipv4", "ipv6") and port.isdecimal():
        about |= {"network.peer.address": host.removeprefix("[").removesuffix("]"), "network.peer.port": int(port)}
    return about


def _work(use: ModelUse) -> dict[str, Any]:
    return {
        "triptych.rows": use.rows,
        "triptych.tokens.input": use.tokens_in,
        "triptych.tokens.output": use.tokens_out,
        "triptych.cached": use.cached,
    }


def _nanoseconds(seconds: float, offset: int) -> int:
    """Since the epoch."""
    return round(seconds * 1e9) + offset
