"""Metrics, traces and logs of one server."""

import logging

from triptych_serving.address import format_address
from triptych_serving.observability.access_log import LogObserver, trace_id_of
from triptych_serving.observability.collectors import MetricSources
from triptych_serving.observability.metrics import MetricsServer
from triptych_serving.observability.options import ObservabilityOptions
from triptych_serving.observability.tracing import Tracing, wants_traces
from triptych_serving.rpc.call_context import Observer

logger = logging.getLogger(__name__)


class Observability:
    """The observers of one server's calls, and its metrics port.

    Args:
        options: see ObservabilityOptions.
        sources: read by metrics and probes.

    Raises:
        UnsupportedError: traces are wanted, and the extra `otel` is not installed.
    """

    def __init__(self, options: ObservabilityOptions, sources: MetricSources) -> None:
        self.port = options.metrics_port  # the actual port after `start`
        self._host = options.metrics_host
        self._metrics = None if options.metrics_port is None else MetricsServer(sources)
        self._tracing = Tracing(options.otlp_endpoint) if wants_traces(options.otlp_endpoint) else None
        self.observers = self._make_observers(options.access_log)

    async def start(self) -> None:
        """Listen. Call it before models are loaded, so that probes are answered meanwhile.

        Raises:
            PortError: the address is in use or not allowed.
        """
        if self._metrics is not None and self.port is not None:
            self.port = await self._metrics.start(self._host, self.port, "--metrics-port")
            logger.info("metrics on http://%s/metrics", format_address(self._host, self.port))

    async def stop(self) -> None:
        """Close the port and send the last traces; takes a few seconds at most."""
        if self._metrics is not None:
            await self._metrics.stop()
        if self._tracing is not None:
            await self._tracing.stop()

    def _make_observers(self, access_log: bool) -> tuple[Observer, ...]:
        metrics = () if self._metrics is None else (self._metrics.observer,)
        if self._tracing is None:
            return (LogObserver(trace_id_of, access_log), *metrics)
        spans = self._tracing.observer  # first: the logs need the ids of its spans
        return (spans, LogObserver(spans.trace_id, access_log), *metrics)
