"""The gRPC server: bind, load, serve, drain."""

import asyncio
import logging
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from grpc import aio
from grpc_health.v1 import health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]

from triptych.v1 import (
    embedding_pb2_grpc,
    fill_mask_pb2_grpc,
    image_classification_pb2_grpc,
    model_pb2_grpc,
    question_answering_pb2_grpc,
    text_classification_pb2_grpc,
    token_classification_pb2_grpc,
    translation_pb2_grpc,
)
from triptych_serving.address import check_free, format_address
from triptych_serving.encoder import EncoderOptions
from triptych_serving.errors import BundleError, PortError, UnavailableError
from triptych_serving.processor import usable_cpus
from triptych_serving.registry import Loaded, Registry, load_registry
from triptych_serving.servicers import services
from triptych_serving.servicers.calls import ActiveCalls
from triptych_serving.servicers.embedding import EmbeddingServicer
from triptych_serving.servicers.fill_mask import FillMaskServicer
from triptych_serving.servicers.health import HEALTH, HealthServicer
from triptych_serving.servicers.image_classification import ImageClassificationServicer
from triptych_serving.servicers.images import ImageCalls
from triptych_serving.servicers.interceptor import RpcInterceptor, Surroundings
from triptych_serving.servicers.models import ModelServicer
from triptych_serving.servicers.question_answering import QuestionAnsweringServicer
from triptych_serving.servicers.text_classification import TextClassificationServicer
from triptych_serving.servicers.texts import TextCalls
from triptych_serving.servicers.token_classification import TokenClassificationServicer
from triptych_serving.servicers.translation import TranslationServicer
from triptych_serving.servicers.translations import TranslationCalls
from triptych_serving.translator import TranslatorOptions

logger = logging.getLogger(__name__)

# The default of 5 ms lets a busy event loop stall the engine's threads for whole steps.
SWITCH_SECONDS = 0.0005
FLUSH_SECONDS = 0.5  # at the end, for answers that are on their way out


@dataclass(frozen=True)
class ServerOptions:
    """How a server runs."""

    models: Path  # repository
    model: str = ""  # only this one
    host: str = "0.0.0.0"
    port: int = 8001  # 0: any free one
    max_message_bytes: int = 64 * 1024 * 1024  # either way
    exit_timeout_seconds: float = 30.0  # for requests in flight, once asked to stop
    reflection: bool = True
    translator: TranslatorOptions = field(default_factory=TranslatorOptions)  # its precision counts for every model
    encoders: EncoderOptions = field(default_factory=EncoderOptions)  # models of the other tasks


class Server:
    """One server process.

        server = Server(options)
        await server.start()        # bound, loaded, ready
        await server.wait()         # until stop() or a signal

    Args:
        options: see ServerOptions.
    """

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.port = options.port
        self._registry: Registry | None = None
        self._pool = ThreadPoolExecutor(usable_cpus(), thread_name_prefix="triptych-text")
        self._stop = asyncio.Event()
        self._health = HealthServicer(["", *services.ALL])
        self._calls = ActiveCalls()
        self._server = aio.server(interceptors=[RpcInterceptor(Surroundings(self._calls))], options=self._channel_options())

    async def start(self) -> None:
        """Bind first, so that health can be asked while models load; return when requests can be served.

        Raises:
            PortError: the address is taken or not allowed.
            ServingError: no model can be served.
        """
        sys.setswitchinterval(SWITCH_SECONDS)
        self._add_services()
        self._bind()
        await self._server.start()
        try:
            self._registry = await asyncio.get_running_loop().run_in_executor(self._pool, self._load)
        except BaseException:
            await self._server.stop(0)
            raise
        if not self.stopping:
            self._health.start()

    async def wait(self) -> None:
        """Serve until `stop` is called, then drain: finish what runs, within the exit timeout, and refuse the rest.

        The port stays open meanwhile: whoever comes is told UNAVAILABLE, where a closing server would cancel the call.
        """
        await self._stop.wait()
        try:
            await asyncio.wait_for(self._calls.drained(), self.options.exit_timeout_seconds)
        except TimeoutError:
            logger.warning("not everything was done within %s s, giving up the rest", self.options.exit_timeout_seconds)
        await self._server.stop(FLUSH_SECONDS)
        if self._registry is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._registry.close, False)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """Begin to drain: from here on health says NOT_SERVING and requests are refused. Call it in the event loop."""
        self._stop.set()
        self._calls.stopping.set()
        self._health.stop()

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
        if self._registry is None:
            raise UnavailableError("the models are still being loaded")
        return self._registry

    def _load(self) -> Registry:
        options = self.options
        registry = load_registry(options.models, options.translator, options.model, options.encoders)
        if not registry.ready:
            raise BundleError("no model can be served", [model.fault for model in registry.models])
        return registry

    def _add_services(self) -> None:
        def registry() -> Registry:
            if self.stopping:  # gRPC refuses new calls a moment later
                raise UnavailableError("the server is shutting down")
            return self.registry

        server, texts = self._server, TextCalls(registry, self._pool)
        translations = TranslationCalls(registry, self._pool)
        translation_pb2_grpc.add_TranslationServiceServicer_to_server(TranslationServicer(translations), server)
        fill_mask_pb2_grpc.add_FillMaskServiceServicer_to_server(FillMaskServicer(texts), server)
        embedding_pb2_grpc.add_EmbeddingServiceServicer_to_server(EmbeddingServicer(texts), server)
        text_classification_pb2_grpc.add_TextClassificationServiceServicer_to_server(TextClassificationServicer(texts), server)
        token_classification_pb2_grpc.add_TokenClassificationServiceServicer_to_server(
            TokenClassificationServicer(texts), server
        )
        question_answering_pb2_grpc.add_QuestionAnsweringServiceServicer_to_server(QuestionAnsweringServicer(texts), server)
        image_classification_pb2_grpc.add_ImageClassificationServiceServicer_to_server(
            ImageClassificationServicer(ImageCalls(registry)), server
        )
        model_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(registry), server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if self.options.reflection:
            reflection.enable_server_reflection((*services.ALL, HEALTH, reflection.SERVICE_NAME), server)

    def _bind(self) -> None:
        host, port = self.options.host, self.options.port
        check_free(host, port)
        try:
            self.port = self._server.add_insecure_port(format_address(host, port))
        except RuntimeError as error:
            raise PortError(f"port {port}: cannot listen on {host}: {error}") from error

    def _channel_options(self) -> list[tuple[str, int]]:
        return [
            ("grpc.so_reuseport", 0),  # two servers on one port would share its connections, silently
            ("grpc.max_receive_message_length", self.options.max_message_bytes),
            ("grpc.max_send_message_length", self.options.max_message_bytes),
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
    await server.start()
    for loaded in server.registry.models:
        logger.info("%s", _describe(loaded))
    logger.info("ready on %s after %.2f s", format_address(options.host, server.port), time.monotonic() - started)
    await server.wait()
    logger.info("stopped")


def _on_signal(server: Server) -> None:
    if server.stopping:
        logger.warning("stopping at once")
        logging.shutdown()
        os._exit(1)  # threads that load or tokenize would hold up an orderly exit
    logger.info("stopping: finishing what runs, refusing what comes")
    server.stop()


def _describe(loaded: Loaded) -> str:
    what = "not served" if loaded.model is None else loaded.model.describe()
    return f"{loaded.entry.name} version {loaded.entry.version}: {what}"
