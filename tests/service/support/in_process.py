"""Servers in the test process, on a real port: they start in a fraction of a second, and tests can inspect their engine."""

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner

from triptych_cli.serve.command import command
from triptych_serving import server as server_module
from triptych_serving.address import format_address
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.decoding.greedy_lane import GreedyLane
from triptych_serving.decoding.search_lane import SearchLane
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.translator import Translator
from triptych_serving.observability import logs
from triptych_serving.repository.model_manager import RepositoryOptions
from triptych_serving.scheduling.request import Row
from triptych_serving.server import Server, ServerOptions

from ...fixtures.toy import MODELS
from .processes import PATIENCE_SECONDS

OPTIONS = ServerOptions(
    RepositoryOptions(MODELS), host="127.0.0.1", port=0, decoders=DecodeModelOptions(engine=EngineOptions(workers=2, slots=4))
)


def options_of(repository: Path) -> ServerOptions:
    """Build options for a repository, with one encoder run at a time."""
    return replace(OPTIONS, repository=RepositoryOptions(repository), encoders=EncoderOptions(runs=1))


class Pace:
    """Counter of engine steps that slows them down while `slow` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = 0
        self.slow = threading.Event()
        for lane in (GreedyLane, SearchLane):
            monkeypatch.setattr(lane, "step", self._paced(lane.step))

    def _paced(self, step: Callable[[Any], list[Row]]) -> Callable[[Any], list[Row]]:
        def run(lane: Any) -> list[Row]:
            self.steps += 1
            if self.slow.is_set():
                time.sleep(0.02)
            return step(lane)

        return run


class Log(logging.Handler):
    """Log of the servers in this process while a `with` block runs."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(logs.TextFormatter())
        self.lines: list[str] = []
        self._logger = logging.getLogger("triptych_serving")
        self._level = self._logger.level

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def __enter__(self) -> Self:
        self._logger.addHandler(self)
        self._logger.setLevel(logging.INFO)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)


@dataclass(frozen=True)
class LocalServer:
    """A server in this process with the flags of `triptych serve`: what tests ask of ServerProcess, and its objects."""

    server: Server
    _loop: asyncio.AbstractEventLoop
    _log: Log

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def address(self) -> str:
        return format_address(self.server.options.host, self.port)

    @property
    def metrics_address(self) -> str:
        """Address of the metrics and probes, host:port."""
        return f"127.0.0.1:{self.server.observability.port}"

    @property
    def log(self) -> str:
        return "\n".join(self._log.lines)

    def signal(self) -> None:
        """Stop the server as SIGTERM does."""
        self._loop.call_soon_threadsafe(self.server.stop)


@contextmanager
def local_server(models: Path, *flags: str | Path) -> Iterator[LocalServer]:
    """Run a server with the flags of `triptych serve`; its log must be free of tracebacks."""
    with Log() as log:
        with _started(options_of_flags(models, *flags)) as (server, loop):
            yield LocalServer(server, loop, log)
        assert "Traceback" not in "\n".join(log.lines)


def options_of_flags(models: Path, *flags: str | Path) -> ServerOptions:
    """Parse flags of `triptych serve`; without others, two workers and free ports."""
    found: list[ServerOptions] = []

    async def serve(options: ServerOptions) -> None:
        found.append(options)

    usual = ("--models", models, "--host", "127.0.0.1", "--port", "0", "--workers", "2")
    unset = {name: None for name in os.environ if name.startswith(("TRIPTYCH_", "OTEL_"))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_module, "serve", serve)
        patch.setattr(logs, "configure_logs", lambda options, always: None)
        CliRunner().invoke(
            command, list(map(str, (*usual, *flags))), env={**unset, "TRIPTYCH_METRICS_PORT": "0"}, catch_exceptions=False
        )
    return found[0]


@contextmanager
def running_server(options: ServerOptions = OPTIONS) -> Iterator[tuple[str, Translator]]:
    """Run a server; yield its address and its only translation model."""
    with serving(options) as server:
        yield f"127.0.0.1:{server.port}", server.registry.translators[0]


@contextmanager
def serving(options: ServerOptions) -> Iterator[Server]:
    """Run a server in a thread; changes to it must happen in its event loop."""
    with _started(options) as (server, _):
        yield server


@contextmanager
def _started(options: ServerOptions) -> Iterator[tuple[Server, asyncio.AbstractEventLoop]]:
    switch_seconds = sys.getswitchinterval()
    started: Future[tuple[Server, asyncio.AbstractEventLoop]] = Future()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(options, started)))
    thread.start()
    server, loop = started.result(PATIENCE_SECONDS)
    try:
        yield server, loop
    finally:
        if thread.is_alive():
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
