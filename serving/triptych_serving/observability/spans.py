"""OpenTelemetry spans: one for each call, after the conventions for RPC, with a child for each stage of a model's work.

Needs the extra `otel`.
"""

import logging
import os
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, format_trace_id, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from triptych.version import __version__
from triptych_serving.rpc.call_context import CallContext, ModelUse, Observer

# Codes that are errors of the server in OpenTelemetry's conventions for gRPC.
ERRORS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})
UNEXPECTED = frozenset({"UNKNOWN", "INTERNAL"})  # spans of these record the exception
MAX_USES = 64  # messages of a stream that have spans, from its beginning
PROPAGATOR = TraceContextTextMapPropagator()
SCHEMES = ("http://", "https://")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")  # the first that is set applies
DEFAULT_SERVICE_NAME = "triptych"  # unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES has another one

logger = logging.getLogger(__name__)


def make_provider(endpoint: str) -> TracerProvider:
    """Make a provider that sends spans over OTLP in batches, from its own thread; spans that overflow its queue are dropped.

    Args:
        endpoint: http://host:port, https://host:port, or host:port without encryption; empty: from the OTEL_* variables.
    """
    if endpoint and not endpoint.startswith(SCHEMES):
        endpoint = f"http://{endpoint}"
    protocol = next((name for name in PROTOCOLS if os.environ.get(name)), "")
    if protocol and not endpoint and os.environ[protocol] != "grpc":  # an endpoint of the variables may be for that protocol
        logger.warning(
            "traces are sent over gRPC only, %s is %s: name the collector's port for gRPC (4317) in --otlp-endpoint",
            protocol,
            os.environ[protocol],
        )
    # Attributes given to `create` override the variables.
    named = "OTEL_SERVICE_NAME" in os.environ or f"{SERVICE_NAME}=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({SERVICE_VERSION: __version__, **({} if named else {SERVICE_NAME: DEFAULT_SERVICE_NAME})})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint or None)))
    return provider


@dataclass(slots=True)
class TracedCall:
    """A call in progress and its span."""

    span: Span
    context: Context  # parent of its children
    offset: int  # nanoseconds from the monotonic clock to the epoch
    uses: int = 0


class TracingObserver(Observer):
    """Make the spans of calls."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._traced: dict[CallContext, TracedCall] = {}

    def trace_id(self, call: CallContext) -> str:
        """Return the trace id of a call in progress; empty if it is not traced."""
        traced = self._traced.get(call)
        return format_trace_id(traced.span.get_span_context().trace_id) if traced else ""

    def on_start(self, call: CallContext) -> None:
        if call.is_background:
            return
        offset = time.time_ns() - time.monotonic_ns()
        span = self._tracer.start_span(
            call.full_method,
            PROPAGATOR.extract(_carrier(call), Context()),
            SpanKind.SERVER,
            _call_attributes(call),
            start_time=_nanoseconds(call.arrived, offset),
        )
        self._traced[call] = TracedCall(span, set_span_in_context(span, Context()), offset)

    def on_use(self, call: CallContext, use: ModelUse) -> None:
        traced = self._traced.get(call)
        if traced is None or not traced.span.is_recording():
            return
        traced.uses += 1
        if traced.uses > MAX_USES:
            return
        model = {"triptych.model.name": use.model, "triptych.model.version": use.version}
        if call.method_type != "bidi_stream":
            traced.span.set_attributes({**model, **_use_attributes(use)})
        for stage, (start, end) in use.stages.items():
            began, ended = _nanoseconds(start, traced.offset), _nanoseconds(end, traced.offset)
            child = self._tracer.start_span(stage, traced.context, attributes=model, start_time=began)
            child.end(max(began, ended))

    def on_end(self, call: CallContext) -> None:
        traced = self._traced.pop(call, None)
        if traced is None:
            return
        span = traced.span
        span.set_attribute("rpc.response.status_code", call.code)
        if call.code in ERRORS:
            span.set_attribute("error.type", call.code)
            span.set_status(Status(StatusCode.ERROR, str(call.error or "") or None))
        if call.error is not None and call.code in UNEXPECTED:
            span.record_exception(call.error)
        span.end(_nanoseconds(call.ended, traced.offset))


def _carrier(call: CallContext) -> dict[str, str]:
    metadata = call.metadata
    return {name: str(metadata[name]) for name in ("traceparent", "tracestate") if name in metadata}


def _call_attributes(call: CallContext) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "rpc.system.name": "grpc",
        "rpc.method": call.full_method,
        "triptych.request_id": call.request_id,
    }
    kind, _, address = unquote(call.peer).partition(":")
    host, _, port = address.rpartition(":")
    if kind in ("ipv4", "ipv6") and port.isdecimal():
        attributes |= {"network.peer.address": host.removeprefix("[").removesuffix("]"), "network.peer.port": int(port)}
    return attributes


def _use_attributes(use: ModelUse) -> dict[str, Any]:
    return {
        "triptych.rows": use.rows,
        "triptych.tokens.input": use.tokens_in,
        "triptych.tokens.output": use.tokens_out,
        "triptych.cached": use.cached,
    }


def _nanoseconds(seconds: float, offset: int) -> int:
    """Convert monotonic seconds to nanoseconds since the epoch."""
    return round(seconds * 1e9) + offset
