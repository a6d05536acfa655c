"""A scripted server, and a way to call it with both clients."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from triptych_client import AsyncClient, Client, call

from .fake_server import FakeServer

Ask = Callable[..., Any]


def ask_sync(address: str, question: Callable[[Any], Any], **settings: Any) -> Any:
    with Client(address, **settings) as client:
        return question(client)


def ask_async(address: str, question: Callable[[Any], Any], **settings: Any) -> Any:
    async def main() -> Any:
        async with AsyncClient(address, **settings) as client:
            return await question(client)

    return asyncio.run(main())


@pytest.fixture(params=[ask_sync, ask_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Makes a client, passes it to a function such as `lambda client: client.models()` and returns the result."""
    asked: Ask = request.param
    return asked


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "FIRST_PAUSE_SECONDS", 0.001)
