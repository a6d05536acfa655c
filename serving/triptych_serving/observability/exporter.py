"""The OpenTelemetry SDK, set up to send spans over OTLP."""

import os

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from triptych.version import __version__

SCHEMES = ("http://", "https://")
NAME = "triptych"  # where OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say no other


def make_provider(endpoint: str) -> TracerProvider:
    """One that sends in batches, from a thread of its own; what does not fit into its queue is dropped.

    Args:
        endpoint: http://host:port, https://host:port, or host:port without encryption; empty: as the OTEL_* variables say.
    """
    if endpoint and not endpoint.startswith(SCHEMES):
        endpoint = f"http://{endpoint}"
    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint or None)))
    return provider


def _resource() -> Resource:
    """What is given to `create` would win over the variables."""
    named = "OTEL_SERVICE_NAME" in os.environ or f"{SERVICE_NAME}=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({SERVICE_VERSION: __version__, **({} if named else {SERVICE_NAME: NAME})})
