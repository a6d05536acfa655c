"""While models load: the ports are open, nothing is promised."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from triptych_client import AsyncClient, UnavailableError
from triptych_serving.errors import RepositoryError
from triptych_serving.observability.options import ObservabilityOptions
from triptych_serving.repository import loading
from triptych_serving.repository import model_manager as manager
from triptych_serving.server import Server

from ...fixtures.toy import SOURCE, TARGET
from ...unit.serving.calls import hold_calls
from ..support.in_process import OPTIONS
from ..support.telemetry import Scrape, fetch


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Models are not loaded before this is set."""
    yield from hold_calls(monkeypatch, loading, "open_bundle")


@asynccontextmanager
async def loading_server() -> AsyncIterator[tuple[Server, "asyncio.Task[None]", AsyncClient]]:
    """A server, its start, and a client that does not try twice."""
    server = Server(replace(OPTIONS, observability=ObservabilityOptions(metrics_port=0, metrics_host="127.0.0.1")))
    starting = asyncio.create_task(server.start())
    while not server.observability.port:
        await asyncio.sleep(0.001)
    async with AsyncClient(f"127.0.0.1:{server.port}", retries=0) as client:
        yield server, starting, client


def pages(http: str) -> list[float | None]:
    """Return the statuses of both probes, and the metric of readiness."""
    return [fetch(http, "/healthz").status, fetch(http, "/readyz").status, Scrape(http).value("ready")]


def test_requests_are_refused_until_the_models_are_loaded(loaded: threading.Event) -> None:
    async def main() -> None:
        async with loading_server() as (server, starting, client):
            http = f"127.0.0.1:{server.observability.port}"
            assert await asyncio.to_thread(pages, http) == [200, 503, 0]
            assert not await client.is_ready()
            assert not await client.is_ready("triptych.v1.TranslationService")
            for ask in (lambda: client.translate(SOURCE), client.models):
                with pytest.raises(UnavailableError, match="the models are still being loaded"):
                    await ask()
            loaded.set()
            await starting
            assert await client.is_ready()
            assert (await client.translate(SOURCE)).text == TARGET
            assert await asyncio.to_thread(pages, http) == [200, 200, 1]
            server.stop()
            await server.wait()

    asyncio.run(main())


def test_a_server_that_is_stopped_while_it_loads_never_says_that_it_serves(loaded: threading.Event) -> None:
    async def main() -> None:
        async with loading_server() as (server, starting, client):
            server.stop()
            loaded.set()
            await starting
            assert not await client.is_ready()
            await server.wait()

    asyncio.run(main())


def test_a_server_that_cannot_load_closes_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> Any:
        raise RepositoryError("models", ["burnt down"])

    async def main() -> None:
        async with loading_server() as (_, starting, client):
            with pytest.raises(RepositoryError, match="models: burnt down"):
                await starting
            assert not await client.is_ready()

    monkeypatch.setattr(manager, "chosen_models", fail)
    asyncio.run(main())
