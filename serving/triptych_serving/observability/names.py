"""Names that metrics, logs and traces share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from triptych_serving.rpc.call_context import CallContext

TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*")  # W3C Trace Context

# Services that probes and tools ask every few seconds: no traces, and in the access log only with `--log-level debug`.
BACKGROUND = ("grpc.health.", "grpc.reflection.")
CODES = (
    "OK",
    "CANCELLED",
    "DEADLINE_EXCEEDED",
    "FAILED_PRECONDITION",
    "INTERNAL",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
    "UNIMPLEMENTED",
)  # that the server's own calls end with


def method_of(rpc: CallContext) -> str:
    """Such as "triptych.v1.TranslationService/Translate"."""
    return f"{rpc.service}/{rpc.method}"


def is_background(rpc: CallContext) -> bool:
    """Whether it says nothing of the work that the server does."""
    return rpc.service.startswith(BACKGROUND)


def trace_id_of(rpc: CallContext) -> str:
    """That the caller sent, as 32 hexadecimal digits; empty if none."""
    match = TRACEPARENT.fullmatch(str(rpc.metadata.get("traceparent", "")))
    return match[1] if match else ""
