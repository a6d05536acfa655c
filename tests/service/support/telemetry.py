"""Metrics, probes and traces of a server under test."""

import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from .processes import PATIENCE_SECONDS


@dataclass(frozen=True)
class Page:
    """HTTP response."""

    status: int
    text: str
    content_type: str


def fetch(address: str, path: str, **headers: str) -> Page:
    """Fetch a page; error statuses are returned, not raised."""
    request = urllib.request.Request(f"http://{address}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return Page(answer.status, answer.read().decode(), answer.headers["Content-Type"])
    except urllib.error.HTTPError as error:
        return Page(error.code, error.read().decode(), error.headers["Content-Type"])


class Scrape:
    """All metric samples at one moment."""

    def __init__(self, address: str) -> None:
        self.families = list(text_string_to_metric_families(fetch(address, "/metrics").text))
        samples = [sample for family in self.families for sample in family.samples]
        self.samples = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}

    @property
    def names(self) -> set[str]:
        """Names of all samples."""
        return {name for name, _ in self.samples}

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of `triptych_<name>`; None if there is no such series."""
        return self.samples.get((f"triptych_{name}", frozenset(labels.items())))

    def series(self, name: str) -> Mapping[frozenset[tuple[str, str]], float]:
        """Return the series of `triptych_<name>` with non-zero values."""
        return {labels: value for (sample, labels), value in self.samples.items() if sample == f"triptych_{name}" and value}


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """OpenTelemetry collector that records spans; it listens on a free port inside a `with` block."""

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
        """Wait until the condition holds for the recorded spans and return them."""
        with self._news:
            assert self._news.wait_for(lambda: condition(self.spans), PATIENCE_SECONDS), self.spans
            return list(self.spans)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.stop(None).wait(PATIENCE_SECONDS)


def attributes_of(message: Any) -> dict[str, Any]:
    """Return the attributes of a span or a resource."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in message.attributes}
