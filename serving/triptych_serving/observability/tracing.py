"""Traces over OTLP, if the extra `otel` is installed.

OpenTelemetry's own variables set sampling, batches, headers, certificates and resource (OTEL_TRACES_SAMPLER, ...).
"""

import asyncio
import os
import threading

from triptych.extras import install_command
from triptych.version import __version__
from triptych_serving.errors import UnsupportedError

FLUSH_SECONDS = 2.0  # for the last spans at shutdown
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Tracing:
    """The connection to an OpenTelemetry collector.

    Args:
        endpoint: see ObservabilityOptions.otlp_endpoint.

    Raises:
        UnsupportedError: the extra is not installed.
    """

    def __init__(self, endpoint: str) -> None:
        try:
            from triptych_serving.observability import spans  # noqa: PLC0415 needs the extra
        except ModuleNotFoundError as error:
            raise UnsupportedError(f"traces: {error.name} is not installed; run: {install_command('otel')}") from error
        self._provider = spans.make_provider(endpoint)
        self.observer = spans.TracingObserver(self._provider.get_tracer("triptych", __version__))

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
            return


def wants_traces(endpoint: str) -> bool:
    """Return True if the option or the environment asks for traces."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    by_environment = any(map(os.environ.get, ENDPOINTS)) and os.environ.get("OTEL_TRACES_EXPORTER", "otlp") == "otlp"
    return bool(endpoint) or by_environment
