"""Traces over OTLP, for those who have installed the extra `otel`.

Sampling, batches, headers, certificates and the resource are set by OpenTelemetry's own variables (OTEL_TRACES_SAMPLER, ...).
"""

import asyncio
import os
import threading

from triptych.version import __version__
from triptych_serving.errors import UnsupportedError

FLUSH_SECONDS = 2.0  # at the end
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Tracing:
    """The way to a collector.

    Args:
        endpoint: http://host:port, https://host:port, or host:port without encryption; empty: as the OTEL_* variables say.

    Raises:
        UnsupportedError: the extra is not installed.
    """

    def __init__(self, endpoint: str) -> None:
        try:
            from triptych_serving.observability import exporter, spans  # noqa: PLC0415 the extra brings what they need
        except ModuleNotFoundError as error:
            raise UnsupportedError(f'traces: {error.name} is not installed; run: pip install "triptych[otel]"') from error
        self._provider = exporter.make_provider(endpoint)
        self.observer = spans.TracingObserver(self._provider.get_tracer("triptych", __version__))

    async def stop(self) -> None:
        """Send what is left, but do not wait for a collector that is away."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            if not loop.is_closed():
                loop.call_soon_threadsafe(done.set)

        # A daemon: the interpreter's end would wait for the threads of a pool.
        threading.Thread(target=shut_down, name="triptych-traces", daemon=True).start()
        try:
            await asyncio.wait_for(done.wait(), FLUSH_SECONDS)
        except TimeoutError:
            return


def wants_traces(endpoint: str) -> bool:
    """Whether the option or the environment asks for them."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    by_environment = any(map(os.environ.get, ENDPOINTS)) and os.environ.get("OTEL_TRACES_EXPORTER", "otlp") == "otlp"
    return bool(endpoint) or by_environment
