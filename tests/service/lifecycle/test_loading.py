"""While models load: the port is open, nothing is promised."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from triptych_client import AsyncClient, UnavailableError
from triptych_serving.errors import RepositoryError
from triptych_serving.repository import loading
from triptych_serving.repository import model_manager as manager
from triptych_serving.server import Server

from ...fixtures.toy import SOURCE, TARGET
from ..support.in_process import OPTIONS
from ..support.processes import PATIENCE_SECONDS


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Models are not loaded before this is set."""
    load, released = loading.open_bundle, threading.Event()

    def held_up(*arguments: Any) -> Any:
        assert released.wait(PATIENCE_SECONDS)
        return load(*arguments)

    monkeypatch.setattr(loading, "open_bundle", held_up)
    yield released
    released.set()


@asynccontextmanager
async def loading_server() -> AsyncIterator[tuple[Server, "asyncio.Task[None]", AsyncClient]]:
    """A server, its start, and a client that does not try twice."""
    server = Server(OPTIONS)
    starting = asyncio.create_task(server.start())
    while server.port == 0:
        await asyncio.sleep(0.001)
    async with AsyncClient(f"127.0.0.1:{server.port}", retries=0) as client:
        yield server, starting, client


def test_requests_are_refused_until_the_models_are_loaded(loaded: threading.Event) -> None:
    async def main() -> None:
        async with loading_server() as (server, starting, client):
            assert not await client.is_ready()
            assert not await client.is_ready("triptych.v1.TranslationService")
            for ask in (lambda: client.translate(SOURCE), client.models):
                with pytest.raises(UnavailableError, match="the models are still being loaded"):
                    await ask()
            loaded.set()
            await starting
            assert await client.is_ready()
            assert (await client.translate(SOURCE)).text == TARGET
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
