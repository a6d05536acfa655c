"""The pages of the HTTP port: metrics for Prometheus, probes for Kubernetes."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import CollectorRegistry, make_wsgi_app

from triptych_serving.observability.httpserver import Handler, Request, Response


class Pages:
    """What there is to see.

    Args:
        registry: the metrics.
        ready: whether the server takes requests.
        before: called before metrics are collected, in the event loop.
    """

    def __init__(self, registry: CollectorRegistry, ready: Callable[[], bool], before: Callable[[], None]) -> None:
        self._application = make_wsgi_app(registry)
        self._ready = ready
        self._before = before
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="triptych-metrics")

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """By path."""
        return {"/metrics": self._metrics, "/healthz": self._live, "/readyz": self._readiness}

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _live(self, request: Request) -> Response:
        return Response.text(200, "live")

    async def _readiness(self, request: Request) -> Response:
        return Response.text(200, "ready") if self._ready() else Response.text(503, "not ready")

    async def _metrics(self, request: Request) -> Response:
        self._before()
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._render, request)

    def _render(self, request: Request) -> Response:
        """Text or OpenMetrics, packed or not, as the client accepts it."""
        answer: dict[str, str] = {}

        def start_response(_status: str, headers: list[tuple[str, str]]) -> None:
            answer.update(headers)

        environment = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query,
            "HTTP_ACCEPT": request.headers.get("accept", ""),
            "HTTP_ACCEPT_ENCODING": request.headers.get("accept-encoding", ""),
        }
        body = b"".join(self._application(environment, start_response))
        return Response(200, body, answer)
