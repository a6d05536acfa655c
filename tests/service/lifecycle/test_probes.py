"""The HTTP port while a server starts, serves, is too busy, and stops; and what it says of callers who were not served."""

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from grpc import aio

from triptych.extras import install_command
from triptych.v1 import translation_pb2
from triptych.v1.translation_pb2_grpc import TranslationServiceStub
from triptych_client import Client
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.models.translation.translator import TranslatorOptions
from triptych_serving.observability.options import ObservabilityOptions
from triptych_serving.repository.model_manager import ModelManager
from triptych_serving.server import Server

from ...fixtures.toy import MODELS, SOURCE, SOURCES, TARGET
from ..support.in_process import OPTIONS, Pace
from ..support.processes import PATIENCE_SECONDS, ServerProcess, clean_environment, triptych
from ..support.telemetry import Collector, Page, Scrape, fetch

SLOTS = 4
OBSERVED = replace(
    OPTIONS,
    observability=ObservabilityOptions(metrics_port=0, metrics_host="127.0.0.1"),
    translator=TranslatorOptions(engine=EngineOptions(workers=1, slots=SLOTS)),
)
TOY = {"model": "toy", "version": "1"}
ALL = translation_pb2.TranslateRequest(contents=SOURCES)


class Watched:
    """A server in this event loop, and its HTTP port."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.translation = TranslationServiceStub(aio.insecure_channel(f"127.0.0.1:{server.port}"))

    async def status(self, path: str) -> int:
        return (await self.fetch(path)).status

    async def fetch(self, path: str) -> Page:
        return await asyncio.to_thread(fetch, self._http, path)

    async def value(self, name: str, **labels: str) -> float | None:
        return (await asyncio.to_thread(Scrape, self._http)).value(name, **labels)

    async def until_value(self, expected: float, name: str, **labels: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self.value(name, **labels) != expected:
                await asyncio.sleep(0.01)

    @property
    def _http(self) -> str:
        return f"127.0.0.1:{self.server.observability.port}"


def run(scenario: Callable[[Watched], Awaitable[None]]) -> None:
    """Run a scenario with a server that has started."""

    async def all_of_it() -> None:
        server = Server(OBSERVED)
        await server.start()
        try:
            await scenario(Watched(server))
        finally:
            server.stop()
            await server.wait()

    asyncio.run(all_of_it())


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> Pace:
    return Pace(monkeypatch)


@pytest.fixture(autouse=True)
def _same_switch_interval() -> object:
    seconds = sys.getswitchinterval()
    yield
    sys.setswitchinterval(seconds)


def test_a_server_that_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    start = ModelManager.start

    async def scenario() -> None:
        go_on = asyncio.Event()

        async def slow_start(manager: ModelManager) -> None:
            await go_on.wait()
            await start(manager)

        monkeypatch.setattr(ModelManager, "start", slow_start)
        server = Server(OBSERVED)
        starting = asyncio.create_task(server.start())
        while not server.observability.port:
            await asyncio.sleep(0.01)
        watched = Watched(server)
        assert await watched.status("/healthz") == 200
        assert await watched.fetch("/readyz") == Page(503, "not ready\n", "text/plain; charset=utf-8")
        assert await watched.value("ready") == 0
        go_on.set()
        await starting
        assert await watched.fetch("/readyz") == Page(200, "ready\n", "text/plain; charset=utf-8")
        assert await watched.value("ready") == 1
        server.stop()
        await server.wait()

    asyncio.run(scenario())


def test_a_server_that_drains(pace: Pace) -> None:
    async def scenario(watched: Watched) -> None:
        assert (await watched.status("/healthz"), await watched.status("/readyz")) == (200, 200)
        pace.slow.set()
        call = watched.translation.Translate(ALL)
        await watched.until_value(SLOTS, "num_requests_running", **TOY)
        assert await watched.value("num_requests_waiting", **TOY) == len(SOURCES) - SLOTS
        watched.server.stop()
        waiting = asyncio.create_task(watched.server.wait())
        assert (await watched.status("/healthz"), await watched.status("/readyz")) == (200, 503)
        pace.slow.clear()
        assert len((await call).translations) == len(SOURCES)
        await waiting
        with pytest.raises(OSError, match="refused"):
            await watched.fetch("/healthz")

    run(scenario)


def test_silent_clients_and_an_absent_collector_disturb_nobody_and_the_end_closes_the_port() -> None:
    with Collector() as gone:
        address = gone.address
    with ServerProcess(MODELS, "--otlp-endpoint", f"http://{address}") as server:
        host, _, port = server.metrics_address.rpartition(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(100)]
        with Client(server.address) as client:
            for _ in range(50):
                assert client.translate(SOURCE).text == TARGET
        for connection in silent:
            connection.close()
        assert wait_for_page(server.metrics_address).status == 200
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert server.log.count("Transient error") == 1
        with pytest.raises(OSError, match="refused"):
            fetch(server.metrics_address, "/readyz")


def wait_for_page(address: str) -> Page:
    """Once the server has noticed that others are gone."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return fetch(address, "/healthz")
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_traces_without_their_extra_are_refused() -> None:
    program = "import sys; sys.modules['opentelemetry.sdk'] = None; from triptych_cli.main import main; main()"
    command = [sys.executable, "-c", program, *triptych("serve", "--models", MODELS, "--port", "0")[3:]]
    result = subprocess.run(
        [*command, "--otlp-endpoint", "127.0.0.1:4317"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        env=clean_environment(),
    )
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("Error: traces: opentelemetry.sdk")
    assert f"run: {install_command('otel')}" in result.stderr
    assert "Traceback" not in result.stderr
