"""Metrics, traces and logs of one server.

OpenTelemetry's own variables set sampling, batches, headers, certificates and resource of traces (OTEL_TRACES_SAMPLER, ...).
"""

import asyncio
import logging
import os
import socket
import threading

from triptych.extras import install_command
from triptych.version import __version__
from triptych_serving.address import format_address
from triptych_serving.errors import UnsupportedError
from triptych_serving.observability.access_log import LogObserver, trace_id_of
from triptych_serving.observability.collectors import MetricSources
from triptych_serving.observability.metrics import MetricsServer
from triptych_serving.observability.options import ObservabilityOptions
from triptych_serving.rpc.call_context import Observer

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 2.0  # for the last spans at shutdown
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Observability:
    """The observers of one server's calls, and its metrics port.

    Args:
        sources: read by metrics and probes.

    Raises:
        UnsupportedError: traces are wanted, and the extra `otel` is not installed, or a variable has an unusable value.
    """

    def __init__(self, options: ObservabilityOptions, sources: MetricSources) -> None:
        self.port = options.metrics_port  # the actual port after `start`
        self._host = options.metrics_host
        self._socket = options.metrics_socket
        self._metrics = None if options.metrics_port is None and self._socket is None else MetricsServer(sources)
        self._tracing = Tracing(options.otlp_endpoint) if wants_traces(options.otlp_endpoint) else None
        self.observers = self._make_observers(options.access_log)

    async def start(self) -> None:
        """Listen. Call it before models are loaded, so that probes are answered meanwhile.

        Raises:
            PortError: the address is in use or not allowed.
        """
        if self._metrics is not None and self._socket is not None:
            await self._metrics.start_unix(socket.socket(fileno=self._socket))
        elif self._metrics is not None and self.port is not None:
            self.port = await self._metrics.start(self._host, self.port, "--metrics-port")
            logger.info("metrics on http://%s/metrics", format_address(self._host, self.port))

    async def stop(self) -> None:
        """Close the port and send the last traces; takes a few seconds at most."""
        if self._metrics is not None:
            await self._metrics.stop()
        if self._tracing is not None:
            await self._tracing.stop()

    @property
    def is_sending(self) -> bool:
        """True after `stop` while the last traces are still being sent, in a thread that cannot be stopped."""
        return self._tracing is not None and self._tracing.is_sending

    def _make_observers(self, access_log: bool) -> tuple[Observer, ...]:
        metrics = () if self._metrics is None else (self._metrics.observer,)
        if self._tracing is None:
            return (LogObserver(trace_id_of, access_log), *metrics)
        spans = self._tracing.observer  # first: the logs need the ids of its spans
        return (spans, LogObserver(spans.trace_id, access_log), *metrics)


class Tracing:
    """The connection to an OpenTelemetry collector, if the extra `otel` is installed.

    Args:
        endpoint: see ObservabilityOptions.otlp_endpoint.

    Raises:
        UnsupportedError: the extra is not installed, or a variable has an unusable value.
    """

    def __init__(self, endpoint: str) -> None:
        try:
            from triptych_serving.observability import spans  # noqa: PLC0415 needs the extra
        except ModuleNotFoundError as error:
            raise UnsupportedError(f"traces: {error.name} is not installed; run: {install_command('otel')}") from error
        try:
            self._provider = spans.make_provider(endpoint)
        except Exception as error:  # of various types; they rarely name the variable
            given = ", ".join(sorted(name for name in os.environ if name.startswith("OTEL_")))
            raise UnsupportedError(f"traces: a variable of OpenTelemetry cannot be used: {error}; set are {given}") from error
        self.observer = spans.TracingObserver(self._provider.get_tracer("triptych", __version__))
        self.is_sending = False  # after `stop`

    async def stop(self) -> None:
        """Send the remaining spans, for FLUSH_SECONDS at most."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            if not loop.is_closed():
                loop.call_soon_threadsafe(done.set)

        # A daemon thread: the interpreter's exit would wait for the threads of a pool.
        threading.Thread(target=shut_down, name="triptych-traces", daemon=True).start()
        try:
            await asyncio.wait_for(done.wait(), FLUSH_SECONDS)
        except TimeoutError:
            self.is_sending = True


def wants_traces(endpoint: str) -> bool:
    """Return True if the option or the environment asks for traces."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    by_environment = any(map(os.environ.get, ENDPOINTS)) and os.environ.get("OTEL_TRACES_EXPORTER", "otlp") == "otlp"
    return bool(endpoint) or by_environment
