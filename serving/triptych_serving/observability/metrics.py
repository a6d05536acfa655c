"""Metrics and probes of one server, and the HTTP port that has them."""

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics

from triptych_serving.observability.enginemetrics import EngineCollector
from triptych_serving.observability.httpserver import HttpServer
from triptych_serving.observability.pages import Pages
from triptych_serving.observability.requestmetrics import MetricsObserver
from triptych_serving.observability.sources import Sources
from triptych_serving.observability.statemetrics import StateCollector

FLAG = "--metrics-port"


class Metrics:
    """All of it, in a registry of its own.

    Args:
        sources: where it comes from.
    """

    def __init__(self, sources: Sources) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # a time for each series
        self.registry = CollectorRegistry()
        self.observer = MetricsObserver(self.registry, sources.models)
        self.observer.expect(sources.methods)
        self.registry.register(StateCollector(sources))
        self.registry.register(EngineCollector(sources.models))
        ProcessCollector(registry=self.registry)
        self._pages = Pages(self.registry, sources.ready, self.observer.forget)
        self._server = HttpServer(self._pages.handlers)

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port.

        Raises:
            PortError: the address is taken or not allowed.
        """
        return await self._server.start(host, port, FLAG)

    async def stop(self) -> None:
        """Close the port."""
        await self._server.stop()
        self._pages.close()
