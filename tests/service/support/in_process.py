"""Servers in the test process, on a real port: tests can inspect their engine."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.decoding.greedy_lane import GreedyLane
from triptych_serving.decoding.search_lane import SearchLane
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.models.translation.translator import Translator, TranslatorOptions
from triptych_serving.repository.model_manager import RepositoryOptions
from triptych_serving.scheduling.request import Row
from triptych_serving.server import Server, ServerOptions

from ...fixtures.toy import MODELS
from .processes import PATIENCE_SECONDS

OPTIONS = ServerOptions(
    RepositoryOptions(MODELS), host="127.0.0.1", port=0, translator=TranslatorOptions(engine=EngineOptions(workers=2, slots=4))
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


@contextmanager
def running_server(options: ServerOptions = OPTIONS) -> Iterator[tuple[str, Translator]]:
    """Run a server; yield its address and its only translation model."""
    with serving(options) as server:
        yield f"127.0.0.1:{server.port}", server.registry.translators[0]


@contextmanager
def serving(options: ServerOptions) -> Iterator[Server]:
    """Run a server in a thread; changes to it must happen in its event loop."""
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
