"""An OpenTelemetry collector that keeps what it gets."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from .processes import PATIENCE_SECONDS


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Listens on a free port inside of a `with` block."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self._news = threading.Condition()
        self._server = grpc.server(ThreadPoolExecutor(2))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        with self._news:
            for group in request.resource_spans:
                self.resources.append(attributes_of(group.resource))
                self.spans += [span for scope in group.scope_spans for span in scope.spans]
            self._news.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse()

    def wait_for(self, condition: Callable[[list[Any]], bool]) -> list[Any]:
        """The spans, once the condition holds for them."""
        with self._news:
            assert self._news.wait_for(lambda: condition(self.spans), PATIENCE_SECONDS), self.spans
            return list(self.spans)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.stop(None).wait(PATIENCE_SECONDS)


def attributes_of(message: Any) -> dict[str, Any]:
    """Of a span or a resource."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in message.attributes}
