"""The gRPC server: bind, load, serve, drain."""

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from grpc import aio

from triptych_serving.address import check_free, format_address
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.errors import PortError, UnavailableError
from triptych_serving.lifecycle import LifecycleOptions
from triptych_serving.models.translation.translator import TranslatorOptions
from triptych_serving.observability.collectors import MetricSources
from triptych_serving.observability.observability import Observability
from triptych_serving.observability.options import ObservabilityOptions
from triptych_serving.repository.loading import Loader
from triptych_serving.repository.model_manager import ModelControl, ModelManager, RepositoryOptions
from triptych_serving.repository.placement import CPU_ALONE, Hardware
from triptych_serving.repository.registry import Registry
from triptych_serving.response_cache.cached_calls import CachedCalls
from triptych_serving.response_cache.response_cache import ResponseCache, ResponseCacheOptions
from triptych_serving.rpc import descriptors as services
from triptych_serving.rpc.active_calls import ActiveCalls, ModelLeases
from triptych_serving.rpc.call_context import Observers
from triptych_serving.rpc.descriptors import methods_of
from triptych_serving.rpc.dispatch import CallEnvironment, Router
from triptych_serving.rpc.limits import ClientLimit, LimitOptions, MessageLimit
from triptych_serving.runtime.cpu_info import usable_cpus
from triptych_serving.runtime.memory.budget import Budgets
from triptych_serving.runtime.process import give_way
from triptych_serving.scheduling.admission import with_queue
from triptych_serving.security.guard import AccessGuard
from triptych_serving.security.options import SecurityOptions
from triptych_serving.security.tls import server_credentials
from triptych_serving.services.documents.calls import DocumentThreads
from triptych_serving.services.health import HEALTH, HealthServicer
from triptych_serving.services.oip.statistics import Statistics
from triptych_serving.wiring import Parts, add_reflection, add_services

logger = logging.getLogger(__name__)

# The default of 5 ms lets a busy event loop stall the engine's threads for whole steps.
SWITCH_SECONDS = 0.0005
FLUSH_SECONDS = 0.5  # at the end, for answers that are on their way out
HANG_SECONDS = 3.0  # beyond the exit timeout; then the process ends whatever still holds it up


@dataclass(frozen=True)
class ServerOptions:
    """How a server runs."""

    repository: RepositoryOptions
    host: str = "0.0.0.0"
    port: int = 8001  # 0: any free one
    reflection: bool = True
    translator: TranslatorOptions = field(default_factory=TranslatorOptions)  # its precision counts for every model
    encoders: EncoderOptions = field(default_factory=EncoderOptions)  # models of the other tasks
    hardware: Hardware = CPU_ALONE  # what models may run on
    limits: LimitOptions = field(default_factory=LimitOptions)  # those of queues go before the engines' own
    lifecycle: LifecycleOptions = field(default_factory=LifecycleOptions)
    repeats: ResponseCacheOptions = field(default_factory=ResponseCacheOptions)
    security: SecurityOptions = field(default_factory=SecurityOptions)
    observability: ObservabilityOptions = field(default_factory=ObservabilityOptions)

    @property
    def gives_way(self) -> bool:
        """Whether all threads do, to the event loop: not where a GPU would wait for them."""
        return not self.hardware.gpus

    @property
    def loader(self) -> Loader:
        """Makes the models."""
        queue, engine = self.limits.queue, self.translator.engine
        engine = replace(engine, limits=with_queue(engine.limits, queue), gives_way=self.gives_way)
        encoders = replace(self.encoders, limits=with_queue(self.encoders.limits, queue), gives_way=self.gives_way)
        translator, budgets = replace(self.translator, engine=engine), Budgets(self.hardware.memory_limit)
        return Loader(translator, encoders, self.repository.warm_up, self.hardware, budgets, self.gives_way)


class Server:
    """One server process.

        server = Server(options)
        await server.start()        # bound, loaded, ready
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
        self.repeats = ResponseCache(options.repeats)
        self._credentials = server_credentials(options.security, options.host)
        begin = give_way if options.gives_way else None
        self._pool = ThreadPoolExecutor(usable_cpus(), "triptych-text", begin)
        self._documents = DocumentThreads(begin)
        self._stop = asyncio.Event()
        self._refusing = False
        self._health = HealthServicer(["", *services.ALL_SERVICES])
        self._statistics = Statistics(self.repeats.is_on)
        self._sizes = MessageLimit(options.limits.message_bytes)
        self._calls, self._leases = ActiveCalls(), ModelLeases()
        self._loader = options.loader
        self.manager = ModelManager(options.repository, self._loader, self._leases.idle)
        self.manager.on_change += [self._show_health, lambda: self.repeats.retain(self.manager.registry.ready)]
        self.observability = Observability(options.observability, self._sources())
        self._routes = Router(self._surroundings())
        self._server = self._make_server(self._routes)

    async def start(self) -> None:
        """Bind first, so that health can be asked while models load; return when requests can be served.

        Raises:
            PortError: the address is taken or not allowed.
            ServingError: no model can be served.
        """
        sys.setswitchinterval(SWITCH_SECONDS)
        repeated = CachedCalls(self.repeats, self._pool)
        parts = Parts(
            self._ask,
            self.manager,
            self._health,
            self._statistics,
            repeated,
            self._pool,
            self._documents,
            self.options.limits,
        )
        add_services(self._routes, parts)
        if self.options.reflection:
            add_reflection(self._routes)
        self._bind()
        await self.observability.start()
        await self._server.start()
        try:
            await self.manager.start()
        except BaseException:
            await self._server.stop(0)
            await self.observability.stop()
            raise

    async def wait(self) -> None:
        """Serve until `stop` is called, then drain: finish what runs, within the exit timeout, and refuse the rest.

        The port stays open meanwhile: whoever comes is told UNAVAILABLE, where a closing server would cancel the call.
        """
        await self.stopped()
        lifecycle, stopped = self.options.lifecycle, time.monotonic()
        if not self._refusing:
            await asyncio.sleep(lifecycle.drain_delay_seconds)
            self._refuse()
        try:
            left = stopped + lifecycle.exit_timeout_seconds - FLUSH_SECONDS - time.monotonic()
            await asyncio.wait_for(self._calls.drained(), max(0.0, left))
        except TimeoutError:
            logger.warning("not everything was done within %g s, giving up the rest", lifecycle.exit_timeout_seconds)
        await self._server.stop(FLUSH_SECONDS)
        await self.manager.close(drain=False)
        await self.observability.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._documents.close()

    def stop(self) -> None:
        """Begin to end: from here on health says NOT_SERVING, and after the drain delay requests are refused.

        Call it in the event loop.
        """
        delayed = self._health.ready and self.options.lifecycle.drain_delay_seconds > 0
        self._health.stop()
        self._stop.set()
        if not delayed:
            self._refuse()

    async def stopped(self) -> None:
        """Wait until it is asked to stop."""
        await self._stop.wait()

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stop.is_set()

    @property
    def registry(self) -> Registry:
        """The loaded models.

        Raises:
            UnavailableError: they are still being loaded.
        """
        if not self.manager.started:
            raise UnavailableError("the models are still being loaded")
        return self.manager.registry

    def _ask(self) -> Registry:
        if self._refusing:  # gRPC refuses new calls a moment later
            raise UnavailableError("the server is shutting down")
        return self.registry

    def _refuse(self) -> None:
        self._refusing = True
        self._calls.stopping.set()

    def _show_health(self) -> None:
        if self.manager.started:
            self._health.show(self.manager.registry)

    def _sources(self) -> MetricSources:
        methods = methods_of((*services.ALL_SERVICES, HEALTH))
        return MetricSources(
            lambda: self.manager.registry,
            lambda: self._health.ready,
            methods,
            self.repeats.counters,
            lambda: self._loader.budgets.made,
        )

    def _surroundings(self) -> CallEnvironment:
        return CallEnvironment(
            self._calls,
            self._leases,
            # Who it is comes before how much of it there may be.
            guards=(AccessGuard(self.options.security), ClientLimit(self.options.limits.requests_per_client)),
            observers=Observers(*self.observability.observers, self._statistics),
            message_limit=self._sizes,
        )

    def _make_server(self, routes: Router) -> aio.Server:
        """gRPC's part; a server behind somebody else's port has another."""
        return aio.server(handlers=[routes], options=self._channel_options())

    def _bind(self) -> None:
        host, port = self.options.host, self.options.port
        check_free(host, port)
        try:
            if self._credentials is None:
                self.port = self._server.add_insecure_port(format_address(host, port))
            else:
                self.port = self._server.add_secure_port(format_address(host, port), self._credentials)
        except RuntimeError as error:
            raise PortError(f"port {port}: cannot listen on {host}: {error}") from error

    def _channel_options(self) -> Sequence[tuple[str, int]]:
        return [
            ("grpc.so_reuseport", 0),  # two servers on one port would share its connections, silently
            *self._sizes.channel_options,
            *self.options.lifecycle.channel_options,
        ]


async def serve(options: ServerOptions) -> None:
    """Run a server until SIGTERM or SIGINT; a second signal ends the process at once.

    Raises:
        ServingError: the server could not start.
    """
    started = time.monotonic()
    server = Server(options)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # asyncio's own handlers are lost when the loop's pipe is full; these are called by the interpreter.
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(_on_signal, server))
    logger.info("%s", options.security.describe())
    for line in options.hardware.describe():
        logger.info("%s", line)
    await _start(server)
    gc.collect()
    gc.freeze()  # what is there now stays: to look through it again and again cost 12 % of the requests a second
    logger.info("ready on %s after %.2f s", format_address(options.host, server.port), time.monotonic() - started)
    await server.wait()
    logger.info("stopped")
    if server.manager.is_loading:  # the thread that does so would hold up an orderly exit
        _exit(0)


async def _start(server: Server) -> None:
    """Unless it is told to stop before its models are loaded."""
    starting, stopped = asyncio.create_task(server.start()), asyncio.create_task(server.stopped())
    await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        logger.info("stopped before the models were loaded")
        _exit(0)  # the thread that loads them would hold up an orderly exit
    stopped.cancel()
    await starting


def _on_signal(server: Server) -> None:
    if server.stopping:
        logger.warning("stopping at once")
        _exit(1)  # threads that load or tokenize would hold up an orderly exit
    logger.info("stopping: finishing what runs, refusing what comes")
    hung = threading.Timer(server.options.lifecycle.exit_timeout_seconds + HANG_SECONDS, _give_up)
    hung.daemon = True
    hung.start()
    server.stop()


def _give_up() -> None:
    logger.error("something does not end, leaving it behind")
    _exit(0)


def _exit(code: int) -> None:
    logging.shutdown()
    os._exit(code)
