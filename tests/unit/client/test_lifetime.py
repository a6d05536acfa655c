import asyncio
import threading

import grpc
import pytest

from triptych_client import AsyncClient, CallCancelledError, Client

from .fake_server import FakeServer


def test_closing_the_client_ends_what_is_under_way(server: FakeServer) -> None:
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


def test_an_async_client_may_be_made_before_its_loop(server: FakeServer) -> None:
    client = AsyncClient(server.address)

    async def main() -> str:
        async with client:
            return (await client.translate("a")).text

    assert asyncio.run(main()) == "A"


def test_threads_share_a_client(server: FakeServer) -> None:
    texts: list[str] = []
    with Client(server.address) as client:
        threads = [threading.Thread(target=lambda text=text: texts.append(client.translate(text).text)) for text in "abcdefgh"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(texts) == list("ABCDEFGH")
