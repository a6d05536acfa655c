"""Settings, life cycle and the model and health services of both clients."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import nullcontext

import grpc
import numpy as np
import pytest

from triptych_client import AsyncClient, CallCancelledError, Client, ModelState, NotFoundError
from triptych_client.connection import DEFAULT_SERVER, check_timeout, parse_address

from .conftest import Ask
from .fake_server import FakeServer


def test_models(server: FakeServer, ask: Ask) -> None:
    assert [model.name for model in ask(server.address, lambda client: client.models())] == ["fake"]
    assert ask(server.address, lambda client: client.model("fake")).version == "2"
    assert ask(server.address, lambda client: client.model("fake", "1")).version == "1"


def test_models_are_loaded_and_unloaded(server: FakeServer, ask: Ask) -> None:
    older, newer = ask(server.address, lambda client: client.load_model("fake"))
    assert (older.version, older.version_labels, older.default_version) == ("2", (), False)
    assert (newer.version, newer.version_labels, newer.default_version) == ("3", ("canary",), True)
    assert newer.state is ModelState.READY
    ask(server.address, lambda client: client.load_model("fake", "canary"))
    assert ask(server.address, lambda client: client.unload_model("fake", "2")) is None
    assert {request.name for request in server.requests} == {"fake"}
    assert [request.version for request in server.requests] == ["", "canary", "2"]


@pytest.mark.parametrize("ready", [True, False])
def test_ready_is_what_the_server_reports(server: FakeServer, ask: Ask, ready: bool) -> None:
    server.set_ready(ready)
    assert ask(server.address, lambda client: client.is_ready()) is ready
    with pytest.raises(NotFoundError):
        ask(server.address, lambda client: client.is_ready("no.such.Service"))


def test_a_proxy_is_not_asked_for_this_machine(server: FakeServer, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for variable in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(variable, raising=False)
    assert ask(server.address, lambda client: client.is_ready())


def test_without_a_server_nothing_is_ready(ask: Ask) -> None:
    with FakeServer() as server:
        address = server.address
    assert ask(address, lambda client: client.is_ready()) is False


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_address_comes_from_argument_then_environment(
    client: type[Client | AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRIPTYCH_SERVER", raising=False)
    assert client().address == DEFAULT_SERVER
    monkeypatch.setenv("TRIPTYCH_SERVER", "translator:9")
    assert client().address == "translator:9"
    assert client("here:1").address == "here:1"
    monkeypatch.setenv("TRIPTYCH_SERVER", "translator:many")
    with pytest.raises(ValueError, match=r"of 1 to 65,535; the environment variable TRIPTYCH_SERVER has the address"):
        client()


@pytest.mark.parametrize(
    ("written", "address", "tls"),
    [
        ("localhost", "localhost:8001", None),
        ("localhost:9", "localhost:9", None),
        ("http://localhost:9", "localhost:9", False),
        ("HTTPS://example.com/", "example.com:8001", True),
        ("::1", "[::1]:8001", None),
        ("[::1]", "[::1]:8001", None),
        ("[::1]:9", "[::1]:9", None),
        ("unix:/run/socket", "unix:/run/socket", None),
        ("dns:///example.com:9", "dns:///example.com:9", None),
        *((bad, "", None) for bad in ("", "host:port", "host:0", ":9", "http://host:9/path", "grpc://host:9", "a b")),
    ],
)
def test_addresses(written: str, address: str, tls: bool | None) -> None:
    with nullcontext() if address else pytest.raises(ValueError, match="is not HOST:PORT"):
        assert parse_address(written) == (address, tls)


@pytest.mark.parametrize("setting", ["timeout_seconds", "retries", "concurrency", "texts_per_call", "max_message_bytes"])
def test_settings_out_of_range_are_named(setting: str) -> None:
    with pytest.raises(ValueError, match=setting):
        Client(**{setting: -1})
    with pytest.raises(ValueError, match=f"{setting} is '1'"):
        Client(**{setting: "1"})


def test_an_address_that_is_no_text_is_named() -> None:
    with pytest.raises(ValueError, match="address is 8001, must be HOST:PORT"):
        Client(8001)  # type: ignore[arg-type]


def test_settings_may_be_numbers_of_numpy(server: FakeServer, ask: Ask) -> None:
    assert ask(server.address, lambda client: client.models(), texts_per_call=np.int64(4), concurrency=np.int64(2))
    assert type(check_timeout(np.float32(9))) is float  # a shorter type would round the clock's time to which it is added


def test_closing_the_client_cancels_running_requests(server: FakeServer) -> None:
    arrived = threading.Event()
    client = Client(server.address)

    def hang(context: grpc.ServicerContext) -> None:
        arrived.set()
        server.hang.wait()

    def close() -> None:
        arrived.wait()
        client.close()

    server.script = [hang]
    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises(CallCancelledError):
        client.translate("a")
    closer.join()


def test_a_closed_client_says_so(server: FakeServer) -> None:
    client = Client(server.address)
    client.close()
    asks: list[Callable[[], object]] = [
        lambda: client.translate("a"),
        lambda: next(client.translate_stream("a")),
        lambda: client.translate_document(b"a", format="text"),
    ]
    for ask in asks:
        with pytest.raises(CallCancelledError, match="the client, or the stream, was closed"):
            ask()


@pytest.mark.parametrize("streams", [False, True])
def test_closing_the_client_cancels_running_requests_async(server: FakeServer, streams: bool) -> None:
    async def main() -> None:
        client = AsyncClient(server.address)
        started = asyncio.Event()

        async def ask() -> None:
            if not streams:
                started.set()
                await client.translate("a")
            async for _ in client.translate_stream("hang"):
                started.set()

        task = asyncio.create_task(ask())
        await started.wait()
        await asyncio.sleep(0)  # a unary call is under way
        await client.close()
        with pytest.raises(CallCancelledError, match="the client, or the stream, was closed"):
            await task
        with pytest.raises(CallCancelledError, match="the client, or the stream, was closed"):
            await client.translate("a")

    server.script = [] if streams else [lambda _: server.hang.wait()]
    asyncio.run(main())


def test_an_async_client_is_for_one_event_loop(server: FakeServer) -> None:
    client = AsyncClient(server.address)

    async def ask(streams: bool = False) -> None:
        if streams:
            client.translate_stream("a")
        await client.translate("a")

    asyncio.run(ask())
    for streams in (False, True):
        with pytest.raises(RuntimeError, match="the client belongs to the event loop of its first call"):
            asyncio.run(ask(streams))
    asyncio.run(client.close())


def test_clients_work_across_loops_and_threads(server: FakeServer) -> None:
    early = AsyncClient(server.address)

    async def main() -> str:
        async with early:
            return (await early.translate("a")).text

    assert asyncio.run(main()) == "A"
    texts: list[str] = []
    with Client(server.address) as client:
        threads = [threading.Thread(target=lambda text=text: texts.append(client.translate(text).text)) for text in "abcdefgh"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(texts) == list("ABCDEFGH")
