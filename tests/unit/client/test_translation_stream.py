"""Translations that arrive piece by piece."""

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from triptych.v1.translation_pb2 import StreamSummary, TranslateStreamResponse, TranslationPiece, TranslationResult
from triptych_client import (
    AsyncClient,
    CallCancelledError,
    Client,
    ServerError,
    Translation,
    TranslationStream,
    UnavailableError,
)
from triptych_client.call import Call

from .fake_server import FakeServer, fail, succeed, translation

UNAVAILABLE = fail(grpc.StatusCode.UNAVAILABLE)
Read = Callable[..., Translation]


def read_sync(address: str, text: str, pieces: list[str], **arguments: Any) -> Translation:
    with Client(address) as client, client.translate_stream(text, **arguments) as stream:
        for piece in stream:
            pieces.append(piece)
        return stream.translation


def read_async(address: str, text: str, pieces: list[str], **arguments: Any) -> Translation:
    async def main() -> Translation:
        async with AsyncClient(address) as client, client.translate_stream(text, **arguments) as stream:
            async for piece in stream:
                pieces.append(piece)
            return stream.translation

    return asyncio.run(main())


@pytest.fixture(params=[read_sync, read_async], ids=["sync", "async"])
def read(request: pytest.FixtureRequest) -> Read:
    read: Read = request.param
    return read


def test_pieces_joined_are_the_translation(server: FakeServer, read: Read) -> None:
    pieces: list[str] = []
    result = read(server.address, "abc", pieces, target_language="en", request_id="mine")
    # The server sends all but the last letter in pieces.
    assert pieces == ["A", "B", "C"]
    assert (result.text, result.model, result.request_id) == ("ABC", "fake", "mine")
    assert server.requests[0].target_language_code == "en"


def test_a_stream_is_retried_before_the_first_piece(server: FakeServer, read: Read) -> None:
    server.script = [UNAVAILABLE, UNAVAILABLE]
    assert read(server.address, "abc", []).text == "ABC"
    assert len(server.requests) == 3


def test_a_stream_is_not_retried_after_the_first_piece(server: FakeServer, read: Read) -> None:
    server.script = [succeed, UNAVAILABLE]
    pieces: list[str] = []
    with pytest.raises(UnavailableError):
        read(server.address, "abc", pieces)
    assert pieces == ["A", "B"]
    assert len(server.requests) == 1


def test_closing_cancels_the_call_on_the_server(server: FakeServer) -> None:
    with Client(server.address) as client:
        with client.translate_stream("hang") as stream:
            assert next(stream) == "H"
        assert server.stream_ended.wait(10)
        assert list(stream) == []
        with pytest.raises(RuntimeError):
            _ = stream.translation


def test_closing_and_cancelling_cancel_the_call_on_the_server_async(server: FakeServer) -> None:
    async def main() -> None:
        async with AsyncClient(server.address) as client:
            async with client.translate_stream("hang") as stream:
                assert await anext(stream) == "H"
            assert await asyncio.to_thread(server.stream_ended.wait, 10)
            server.stream_ended.clear()
            started = asyncio.Event()

            async def read() -> None:
                async for _ in client.translate_stream("hang"):
                    started.set()

            task = asyncio.create_task(read())
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(server.stream_ended.wait, 10)

    asyncio.run(main())


def test_closing_ends_the_wait_of_another_thread(server: FakeServer) -> None:
    with Client(server.address) as client:
        stream = client.translate_stream("hang")
        closer = threading.Timer(0.05, stream.close)
        closer.start()
        with pytest.raises(CallCancelledError):
            list(stream)
        closer.join()
        assert server.stream_ended.wait(10)


def test_closing_ends_the_wait_of_another_task(server: FakeServer) -> None:
    async def main() -> None:
        async with AsyncClient(server.address) as client:
            stream = client.translate_stream("hang")
            assert [await anext(stream) for _ in "HAN"] == ["H", "A", "N"]
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.05)
            await stream.close()
            with pytest.raises(CallCancelledError):
                await waiting

    asyncio.run(main())


PIECE = TranslateStreamResponse(piece=TranslationPiece(text="X"))
RESULT = TranslateStreamResponse(result=TranslationResult(translation=translation("abc")))
SUMMARY = TranslateStreamResponse(summary=StreamSummary(model="fake"))


class Response(Iterator[TranslateStreamResponse]):
    """A call of gRPC's that has received these messages."""

    def __init__(self, messages: Sequence[TranslateStreamResponse]) -> None:
        self._left = iter(messages)
        self.cancelled = False

    def __next__(self) -> TranslateStreamResponse:
        return next(self._left)

    def cancel(self) -> None:
        self.cancelled = True


def stream_of(response: Response) -> TranslationStream:
    channel = SimpleNamespace(unary_stream=lambda *_, **__: lambda *_, **__: response)
    return TranslationStream(channel, None, Call("mine", 1.0))


@pytest.mark.parametrize("messages", [[], [SUMMARY], [RESULT], [PIECE, RESULT, SUMMARY]])
def test_a_stream_that_violates_the_contract_is_an_error(messages: list[TranslateStreamResponse]) -> None:
    response = Response(messages)
    with pytest.raises(ServerError) as caught:
        list(stream_of(response))
    assert caught.value.request_id == "mine"
    assert response.cancelled


def test_dropping_a_stream_cancels_its_request_at_once() -> None:
    response = Response([PIECE, PIECE])
    gc.disable()  # the collector would do it later
    try:
        for _ in stream_of(response):
            break
    finally:
        gc.enable()
    assert response.cancelled
