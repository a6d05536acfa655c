"""The HTTP port with metrics for Prometheus and probes for Kubernetes."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics, make_wsgi_app

from triptych_serving.observability.collectors import MetricSources, engine_collector, state_collector
from triptych_serving.observability.http_server import HttpRequest, HttpResponse, HttpServer
from triptych_serving.observability.request_metrics import MetricsObserver

FLAG = "--metrics-port"


class MetricsServer:
    """Serve /metrics, /healthz and /readyz of one server. Its metrics are in a registry of their own."""

    def __init__(self, sources: MetricSources) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # a creation time for each series
        self.registry = CollectorRegistry()
        self.observer = MetricsObserver(self.registry, sources.models)
        self.observer.expect(sources.methods)
        self.registry.register(state_collector(sources))
        self.registry.register(engine_collector(sources.models))
        ProcessCollector(registry=self.registry)
        self._ready = sources.ready
        self._application = make_wsgi_app(self.registry)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="triptych-metrics")
        self._server = HttpServer({"/metrics": self._metrics, "/healthz": self._healthz, "/readyz": self._readyz})

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port.

        Raises:
            PortError: the address is in use or not allowed.
        """
        return await self._server.start(host, port, FLAG)

    async def stop(self) -> None:
        """Close the port."""
        await self._server.stop()
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
            "HTTP_ACCEPT": request.headers.get("accept", ""),
            "HTTP_ACCEPT_ENCODING": request.headers.get("accept-encoding", ""),
        }
        return HttpResponse(200, b"".join(self._application(environment, start_response)), headers)
