"""Everything that shows what a server does, put together."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from triptych_serving.address import format_address
from triptych_serving.observability.calllog import LogObserver
from triptych_serving.observability.metrics import Metrics
from triptych_serving.observability.names import trace_id_of
from triptych_serving.observability.options import ObservabilityOptions
from triptych_serving.observability.sources import Sources
from triptych_serving.observability.tracing import Tracing, wants_traces

if TYPE_CHECKING:
    from triptych_serving.rpc.call_context import Observer

logger = logging.getLogger(__name__)


class Observability:
    """Of one server.

        shown = Observability(options, sources)
        Observers(*shown.observers)
        await shown.start()         # before models load: probes answer from here on
        await shown.stop()

    Args:
        options: what is shown, and where.
        sources: what metrics and probes look at.

    Raises:
        UnsupportedError: traces are wanted, and the extra `otel` is not installed.
    """

    def __init__(self, options: ObservabilityOptions, sources: Sources) -> None:
        self.port = options.metrics_port  # the one that it listens on, once it has started
        self._host = options.metrics_host
        self._metrics = None if options.metrics_port is None else Metrics(sources)
        self._tracing = Tracing(options.otlp_endpoint) if wants_traces(options.otlp_endpoint) else None
        self.observers = self._observers(options.access_log)

    async def start(self) -> None:
        """Listen. To be called before models load, so that probes are answered meanwhile.

        Raises:
            PortError: the address is taken or not allowed.
        """
        if self._metrics is not None and self.port is not None:
            self.port = await self._metrics.start(self._host, self.port)
            logger.info("metrics on http://%s/metrics", format_address(self._host, self.port))

    async def stop(self) -> None:
        """Close the port and send the last traces; takes a few seconds at most."""
        if self._metrics is not None:
            await self._metrics.stop()
        if self._tracing is not None:
            await self._tracing.stop()

    def _observers(self, access_log: bool) -> tuple[Observer, ...]:
        """Spans begin first: the logs name their ids."""
        measuring = () if self._metrics is None else (self._metrics.observer,)
        if self._tracing is None:
            return (LogObserver(trace_id_of, access_log), *measuring)
        spans = self._tracing.observer
        return (spans, LogObserver(spans.trace_id, access_log), *measuring)
