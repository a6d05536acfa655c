"""The gRPC server: binds its ports, loads models, serves, and drains at shutdown."""

import asyncio
import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from grpc import aio

from triptych.signals import signals_in_loop
from triptych_serving.address import check_free, format_address
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.errors import PortError, UnavailableError, UnsupportedError
from triptych_serving.gateway.options import GatewayOptions
from triptych_serving.lifecycle import LifecycleOptions
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.observability.collectors import MetricSources
from triptych_serving.observability.observability import Observability
from triptych_serving.observability.options import ObservabilityOptions
from triptych_serving.processes import ProcessPlace
from triptych_serving.repository.loading import Loader
from triptych_serving.repository.model_manager import ModelControl, ModelManager, RepositoryOptions
from triptych_serving.repository.placement import CPU_ALONE, Hardware
from triptych_serving.repository.registry import Registry
from triptych_serving.response_cache.response_cache import ResponseCache, ResponseCacheOptions
from triptych_serving.rpc.active_calls import ActiveCalls, ModelLeases
from triptych_serving.rpc.call_context import Observers
from triptych_serving.rpc.descriptors import ALL_SERVICES, methods_of
from triptych_serving.rpc.dispatch import CallEnvironment, Router
from triptych_serving.rpc.limits import ClientLimit, LimitOptions, WatcherLimit
from triptych_serving.runtime.cpu_info import usable_cpus
from triptych_serving.runtime.memory.budget import Budgets
from triptych_serving.runtime.process import allow_open_files, give_way
from triptych_serving.scheduling.admission import with_queue
from triptych_serving.security.guard import AccessGuard
from triptych_serving.security.options import SecurityOptions
from triptych_serving.security.tls import open_certificates, server_credentials
from triptych_serving.services.documents.workers import DocumentWorkers
from triptych_serving.services.health import HEALTH_SERVICE, HealthServicer
from triptych_serving.services.oip.statistics import Statistics
from triptych_serving.wiring import ServerParts, add_reflection, add_services

if TYPE_CHECKING:
    from triptych_serving.gateway.http_server import HttpPort

logger = logging.getLogger(__name__)

# The default of 5 ms lets a busy event loop stall the engine's threads for whole steps.
SWITCH_SECONDS = 0.0005
FLUSH_SECONDS = 0.5  # at shutdown, for responses that are being sent
# At shutdown the port is closed once no call has come for QUIET_SECONDS, as gRPC cancels a call that comes while it closes.
# If calls keep coming, it is closed after MAX_QUIET_WAIT_SECONDS.
QUIET_SECONDS, MAX_QUIET_WAIT_SECONDS = 0.1, 2.0
HANG_SECONDS = 3.0  # after the exit timeout; then the process exits whatever still runs


@dataclass(frozen=True)
class ServerOptions:
    """Options of a server."""

    repository: RepositoryOptions
    host: str = "0.0.0.0"
    port: int = 8001  # 0: any free one
    reflection: bool = True
    decoders: DecodeModelOptions = field(default_factory=DecodeModelOptions)  # its precision applies to every model
    encoders: EncoderOptions = field(default_factory=EncoderOptions)  # models of the other tasks
    hardware: Hardware = CPU_ALONE  # devices for models
    limits: LimitOptions = field(default_factory=LimitOptions)  # those of queues override the engines' own
    lifecycle: LifecycleOptions = field(default_factory=LifecycleOptions)
    repeats: ResponseCacheOptions = field(default_factory=ResponseCacheOptions)
    security: SecurityOptions = field(default_factory=SecurityOptions)
    observability: ObservabilityOptions = field(default_factory=ObservabilityOptions)
    gateway: GatewayOptions | None = None  # None: no HTTP port
    place: ProcessPlace | None = None  # of this process, if several serve on the same ports

    def at(self, place: ProcessPlace) -> "ServerOptions":
        """Return the options of one of several processes."""
        gateway, port = self.gateway, place.http_port
        if gateway is not None and port is not None:
            gateway = replace(gateway, port=port, is_shared=True, documents=Path(place.documents))
        observability = replace(self.observability, metrics_port=None, metrics_socket=place.metrics)
        return replace(self, port=place.port, gateway=gateway, observability=observability, place=place)

    @property
    def gives_way(self) -> bool:
        """True if all threads give way to the event loop; not with GPUs, which would wait for them."""
        return not self.hardware.gpus

    @property
    def loader(self) -> Loader:
        """The loader of models."""
        queue, engine = self.limits.queue, self.decoders.engine
        engine = replace(engine, limits=with_queue(engine.limits, queue), gives_way=self.gives_way)
        encoders = replace(self.encoders, limits=with_queue(self.encoders.limits, queue), gives_way=self.gives_way)
        decoders, budgets = replace(self.decoders, engine=engine), Budgets(self.hardware.memory_limit)
        return Loader(decoders, encoders, self.repository.warm_up, self.hardware, budgets, self.gives_way)


class Server:
    """A gRPC server.

        server = Server(options)
        await server.start()        # bound, models loaded, ready
        await server.wait()         # until stop() or a signal

    Args:
        options: see ServerOptions.

    Raises:
        SecurityError: certificates or API keys cannot be used.
    """

    def __init__(self, options: ServerOptions) -> None:
        options.security.check_control(options.repository.control is ModelControl.EXPLICIT)
        self.options = options
        self.port = options.port
        self.calls = ActiveCalls()
        self.repeats = ResponseCache(options.repeats)
        options.security.check_host(options.host)
        self._certificates = open_certificates(options.security)
        begin = give_way if options.gives_way else None
        self._pool = ThreadPoolExecutor(usable_cpus(), "triptych-text", begin)
        self._documents = DocumentWorkers(begin)
        self._stop = asyncio.Event()
        self._health = HealthServicer()
        self._others_are_ready = options.place is None
        self._statistics = Statistics(self.repeats.is_on)
        self._message_limit = options.limits.messages
        self._leases = ModelLeases()
        self._loader = options.loader
        self.manager = ModelManager(options.repository, self._loader, self._leases.wait_until_idle)
        self.manager.on_change += [self._update_health, lambda: self.repeats.retain(self.manager.registry.ready)]
        self.observability = Observability(options.observability, self._metric_sources())
        self._router = Router(self._call_environment())
        self._gateway = self._make_gateway()
        self._server = self._make_server(self._router)

    async def start(self) -> None:
        """Bind the ports, so that health checks are answered while models load; return when the server is ready.

        Raises:
            PortError: an address is in use or not allowed.
            ServingError: no model can be served.
        """
        sys.setswitchinterval(SWITCH_SECONDS)
        parts = ServerParts(
            registry=self.serving_registry,
            manager=self.manager,
            health=self._health,
            statistics=self._statistics,
            cache=self.repeats,
            pool=self._pool,
            documents=self._documents,
            limits=self.options.limits,
        )
        add_services(self._router, parts)
        if self.options.reflection:
            add_reflection(self._router)
        self._bind()
        await self.observability.start()
        await self._server.start()
        try:
            if self._gateway is not None:
                await self._gateway.start()
            await self.manager.start()
            if self.options.place is not None:
                await self.options.place.wait_until_all_are_ready()
                self._others_are_ready = True
                self._update_health()
        except BaseException:
            await self._server.stop(0)
            await self._stop_gateway(0)
            await self.observability.stop()
            raise

    async def wait(self) -> None:
        """Serve until `stop` is called, then drain: finish the calls in progress, within the exit timeout.

        The port stays open meanwhile: new calls get UNAVAILABLE, where a closing server would cancel them.
        """
        await self.wait_for_stop()
        lifecycle, stopped = self.options.lifecycle, time.monotonic()
        if not self.calls.rejecting.is_set():
            await asyncio.sleep(lifecycle.drain_delay_seconds)
            self._reject()
        last = stopped + lifecycle.exit_timeout_seconds - FLUSH_SECONDS
        try:
            await asyncio.wait_for(self.calls.wait_until_drained(), max(0.0, last - time.monotonic()))
            with suppress(TimeoutError):
                left = min(MAX_QUIET_WAIT_SECONDS, last - time.monotonic())
                await asyncio.wait_for(self.calls.wait_until_quiet(QUIET_SECONDS), left)
        except TimeoutError:
            logger.warning(
                "drain timed out after %g s, cancelling %d requests", lifecycle.exit_timeout_seconds, self.calls.count
            )
        await asyncio.gather(self._server.stop(FLUSH_SECONDS), self._stop_gateway(FLUSH_SECONDS))
        await self.manager.close()
        await self.observability.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._documents.close()

    def stop(self) -> None:
        """Begin to stop: health turns NOT_SERVING now, and requests are rejected after the drain delay.

        Must be called in the event loop.
        """
        delayed = self._health.ready and self.options.lifecycle.drain_delay_seconds > 0
        self._health.stop()
        self._stop.set()
        if not delayed:
            self._reject()

    async def wait_for_stop(self) -> None:
        """Wait until `stop` is called."""
        await self._stop.wait()

    @property
    def stopping(self) -> bool:
        """True after `stop`; requests are still accepted during the drain delay."""
        return self._stop.is_set()

    def serving_registry(self) -> Registry:
        """Return the loaded models.

        Raises:
            UnavailableError: the models are still being loaded, or the server is shutting down.
        """
        if self.calls.rejecting.is_set():  # gRPC itself rejects new calls a moment later
            raise UnavailableError("the server is shutting down")
        return self.registry

    @property
    def registry(self) -> Registry:
        """The loaded models, also during shutdown.

        Raises:
            UnavailableError: they are still being loaded.
        """
        if not self.manager.started:
            raise UnavailableError("the models are still being loaded")
        return self.manager.registry

    def _reject(self) -> None:
        logger.info("draining: %d requests in flight, rejecting new requests", self.calls.count)
        self.calls.rejecting.set()

    def _update_health(self) -> None:
        if self.manager.started and self._others_are_ready:
            self._health.update(self.manager.registry)

    def _metric_sources(self) -> MetricSources:
        return MetricSources(
            registry=lambda: self.manager.registry,
            ready=lambda: self._health.ready,
            leaving=lambda: self.manager.leaving,
            methods=methods_of((*ALL_SERVICES, HEALTH_SERVICE)),
            cache=self.repeats.counters,
            budgets=lambda: self._loader.budgets.made,
        )

    def _call_environment(self) -> CallEnvironment:
        return CallEnvironment(
            self.calls,
            self._leases,
            # In this order: the limits apply to the caller that the first guard identifies.
            guards=(
                AccessGuard(self.options.security),
                ClientLimit(self.options.limits.requests_per_client),
                WatcherLimit(self.options.limits.health_watchers),
            ),
            observers=Observers(*self.observability.observers, self._statistics),
            message_limit=self._message_limit,
        )

    @property
    def http_port(self) -> int | None:
        """The port of the HTTP gateway after `start`; None without one."""
        return None if self._gateway is None else self._gateway.port

    def _make_gateway(self) -> "HttpPort | None":
        options = self.options.gateway
        if options is None:
            return None
        try:
            from triptych_serving.gateway.gateway import make_gateway  # noqa: PLC0415 its libraries are an extra
        except ImportError as error:
            raise UnsupportedError(f"--http-port needs the extra http, {error.name} is not installed") from error
        security, limits = self.options.security, self.options.limits
        return make_gateway(options, security, self._certificates, self._router, limits, self._pool, lambda: self.port)

    async def _stop_gateway(self, seconds: float) -> None:
        if self._gateway is not None:
            await self._gateway.stop(seconds)

    def _make_server(self, router: Router) -> aio.Server:
        """Make gRPC's server; a subclass behind another server's port makes another one."""
        return aio.server(handlers=[router], options=self._channel_options())

    def _bind(self) -> None:
        host, port = self.options.host, self.options.port
        if self.options.place is None:
            check_free(host, port)
        try:
            if self._certificates is None:
                self.port = self._server.add_insecure_port(format_address(host, port))
            else:
                credentials = server_credentials(self._certificates)
                self.port = self._server.add_secure_port(format_address(host, port), credentials)
        except RuntimeError as error:
            raise PortError(f"port {port}: cannot listen on {host}: {error}") from error

    def _channel_options(self) -> Sequence[tuple[str, int]]:
        return [
            # Without processes that belong together, two servers on one port would share its connections silently.
            ("grpc.so_reuseport", int(self.options.place is not None)),
            *self._message_limit.channel_options,
            *self.options.lifecycle.channel_options,
        ]


async def serve(options: ServerOptions, on_ready: Callable[[Server], None] = lambda _: None) -> None:
    """Run a server until SIGTERM or SIGINT; a second signal ends the process at once.

    Args:
        options: see ServerOptions.
        on_ready: called when all models are loaded; must not block.

    Raises:
        ServingError: the server could not start.
    """
    started = time.monotonic()
    allow_open_files()
    server = Server(options)
    with signals_in_loop(asyncio.get_running_loop(), lambda _: _on_signal(server)):
        logger.info("%s", options.security.describe())
        for line in options.hardware.describe():
            logger.info("%s", line)
        await _start(server)
        gc.collect()
        gc.freeze()  # these objects stay: scanning them again and again cost 12 % of the requests per second
        if options.place is None:  # else the supervisor says it
            logger.info("ready on %s after %.2f s", format_address(options.host, server.port), time.monotonic() - started)
        on_ready(server)
        await server.wait()
        logger.info("stopped")
        if server.manager.is_loading or server.observability.is_sending:  # whose threads would delay an orderly exit
            _exit(0)


async def _start(server: Server) -> None:
    """Start a server, unless it is stopped before its models are loaded."""
    starting, stopped = asyncio.create_task(server.start()), asyncio.create_task(server.wait_for_stop())
    await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        logger.info("stopped before the models were loaded")
        _exit(0)  # the thread that loads them would delay an orderly exit
    stopped.cancel()
    await starting


def _on_signal(server: Server) -> None:
    if server.stopping:
        logger.warning("second signal, exiting at once")
        _exit(1)  # threads that load or tokenize would delay an orderly exit
    lifecycle = server.options.lifecycle
    logger.info("stopping: drain delay %g s, exit timeout %g s", lifecycle.drain_delay_seconds, lifecycle.exit_timeout_seconds)
    seconds = lifecycle.exit_timeout_seconds + HANG_SECONDS
    watchdog = threading.Timer(seconds, _force_exit, (seconds,))
    watchdog.daemon = True
    server.stop()
    try:
        watchdog.start()
    except RuntimeError as error:  # the process has reached its limit of threads or memory
        logger.warning("shutdown has no time limit: %s", error)


def _force_exit(seconds: float) -> None:
    logger.error("shutdown timed out after %g s, forcing exit", seconds)
    _exit(0)


def _exit(code: int) -> None:
    logging.shutdown()
    os._exit(code)
