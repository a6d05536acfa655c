"""The HTTP port with metrics for Prometheus and probes for Kubernetes."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics, make_wsgi_app
from prometheus_client.exposition import choose_encoder

from triptych_serving.observability.collectors import MetricSources, engine_collector, state_collector
from triptych_serving.observability.http_server import HttpRequest, HttpResponse, HttpServer
from triptych_serving.observability.request_metrics import MetricsObserver


class MetricsServer(HttpServer):
    """Serve /metrics, /healthz and /readyz of one server. Its metrics are in a registry of their own."""

    def __init__(self, sources: MetricSources) -> None:
        super().__init__({"/metrics": self._metrics, "/healthz": self._healthz, "/readyz": self._readyz})
        disable_created_metrics()  # type: ignore[no-untyped-call] # a creation time for each series
        registry = CollectorRegistry()
        self.observer = MetricsObserver(registry, sources.models)
        self.observer.expect(sources.methods)
        registry.register(state_collector(sources))
        registry.register(engine_collector(sources))
        ProcessCollector(registry=registry)
        self._ready = sources.ready
        self._application = make_wsgi_app(registry)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="triptych-metrics")

    async def stop(self) -> None:
        """Close the port and end the thread."""
        await super().stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _healthz(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse.text(200, "live")

    async def _readyz(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse.text(200, "ready") if self._ready() else HttpResponse.text(503, "not ready")

    async def _metrics(self, request: HttpRequest) -> HttpResponse:
        self.observer.forget()
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._render, request)

    def _render(self, request: HttpRequest) -> HttpResponse:
        """Render text or OpenMetrics, compressed or not, as the client accepts it."""
        headers: dict[str, str] = {}

        def start_response(_status: str, given: list[tuple[str, str]]) -> None:
            headers.update(given)

        environment = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query,
            "HTTP_ACCEPT": _readable(request.headers.get("accept", "")),
            "HTTP_ACCEPT_ENCODING": request.headers.get("accept-encoding", ""),
        }
        return HttpResponse(200, b"".join(self._application(environment, start_response)), headers)


def _readable(accept: str) -> str:
    """Return an Accept header, or none if prometheus_client cannot compare its versions, such as `version="1.0.0"`."""
    try:
        choose_encoder(accept)
    except TypeError:
        return ""
    return accept
