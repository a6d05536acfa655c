"""A server in this process, on a real port: its engine can be looked at."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.models.translation.translator import Translator, TranslatorOptions
from triptych_serving.repository.model_manager import RepositoryOptions
from triptych_serving.server import Server, ServerOptions

from ..fixtures.toy import MODELS
from .processes import PATIENCE_SECONDS

OPTIONS = ServerOptions(
    RepositoryOptions(MODELS), host="127.0.0.1", port=0, translator=TranslatorOptions(engine=EngineOptions(workers=2, slots=4))
)


@contextmanager
def running_server(options: ServerOptions = OPTIONS) -> Iterator[tuple[str, Translator]]:
    """Its address and its only model, which translates."""
    with serving(options) as server:
        yield f"127.0.0.1:{server.port}", server.registry.translators[0]


@contextmanager
def serving(options: ServerOptions) -> Iterator[Server]:
    """A server that has started; what is done to it beyond looking belongs into its event loop."""
    switch_seconds = sys.getswitchinterval()
    started: Future[tuple[Server, asyncio.AbstractEventLoop]] = Future()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(options, started)))
    thread.start()
    server, loop = started.result(PATIENCE_SECONDS)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(server.stop)
        thread.join(PATIENCE_SECONDS)
        sys.setswitchinterval(switch_seconds)
        assert not thread.is_alive()


async def _serve(options: ServerOptions, started: "Future[tuple[Server, asyncio.AbstractEventLoop]]") -> None:
    server = Server(options)
    try:
        await server.start()
    except BaseException as error:
        started.set_exception(error)
        raise
    started.set_result((server, asyncio.get_running_loop()))
    await server.wait()
