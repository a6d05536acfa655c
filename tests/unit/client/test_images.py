"""Images, in one call and in a stream."""

import asyncio
import contextlib
import io
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from triptych.v1.image_classification_pb2 import ClassifyImageStreamResponse
from triptych_client import (
    AsyncClient,
    Client,
    DeadlineExceededError,
    ImageOutcome,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    ServerError,
    UnavailableError,
)
from triptych_client.call import Call
from triptych_client.images import ImageExchange, Resend, stream_images, stream_images_async
from triptych_client.status import error_of_status

from .conftest import Ask
from .fake_server import FakeServer, bad_field, classified_image, fail, succeed

Outcomes = Callable[..., list[ImageOutcome]]
UNAVAILABLE = fail(grpc.StatusCode.UNAVAILABLE)


def stream_sync(address: str, images: Any, settings: dict[str, Any] | None = None, **arguments: Any) -> list[ImageOutcome]:
    with Client(address, **settings or {}) as client:
        return list(client.classify_images(images, **arguments))


def stream_async(address: str, images: Any, settings: dict[str, Any] | None = None, **arguments: Any) -> list[ImageOutcome]:
    async def main() -> list[ImageOutcome]:
        async with AsyncClient(address, **settings or {}) as client:
            return [outcome async for outcome in client.classify_images(images, **arguments)]

    return asyncio.run(main())


both = pytest.mark.parametrize("stream", [stream_sync, stream_async], ids=["sync", "async"])


def widths(outcomes: list[ImageOutcome]) -> list[int]:
    """Return the widths, which are the lengths of the files."""
    return sorted(outcome.get().width for outcome in outcomes)


def test_images_in_one_call(server: FakeServer, ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"abc")
    results = ask(server.address, lambda client: client.classify_image_many([b"a", tmp_path / "a.png", io.BytesIO(b"ab")]))
    assert [result.width for result in results] == [1, 3, 2]
    ask(server.address, lambda client: client.classify_image_many([bytes(400_000)] * 5), concurrency=1)
    assert [len(request.images) for request in server.requests] == [3, 2, 2, 1]  # large images make small requests
    with pytest.raises(FileNotFoundError):
        ask(server.address, lambda client: client.classify_image(tmp_path / "missing.png"))


@pytest.mark.parametrize("image", [b"abc", "a.png", Path("a.png"), io.BytesIO(b"abc")])
@pytest.mark.parametrize("method", ["classify_image_many", "classify_images"])
def test_a_single_image_is_rejected_where_several_belong(method: str, image: Any) -> None:
    with Client("localhost:1") as client, pytest.raises(TypeError, match=f"{method} takes several images"):
        getattr(client, method)(image)


@pytest.mark.parametrize(("argument", "value"), [("top_k", -1), ("in_flight", 0)])
def test_wrong_arguments_of_a_stream_raise_at_once(argument: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{argument} is {value}, must be"):
        Client().classify_images([], **{argument: value})


@both
def test_every_image_has_an_outcome(server: FakeServer, stream: Outcomes) -> None:
    assert stream(server.address, []) == []
    assert server.requests == []
    images = [bytes(length) for length in range(1, 41)]
    outcomes = stream(server.address, images, in_flight=3, top_k=2, model="m", request_id="mine")
    assert sorted((outcome.index, outcome.get().width) for outcome in outcomes) == [(i, i + 1) for i in range(40)]
    assert (outcomes[0].get().model, outcomes[0].get().request_id) == ("fake", "mine")
    assert {(request.model, request.top_k) for request in server.requests} == {("m", 2)}


def test_images_from_an_asynchronous_iterator(server: FakeServer) -> None:
    async def images() -> AsyncIterator[bytes]:
        for length in range(1, 6):
            yield bytes(length)

    assert widths(stream_async(server.address, images(), in_flight=2)) == [1, 2, 3, 4, 5]


@both
def test_bad_images_do_not_stop_the_others(server: FakeServer, stream: Outcomes, tmp_path: Path) -> None:
    images = [b"a", b"bad", tmp_path / "missing.png", 7, bytes(2000), b"ab"]
    outcomes = {outcome.index: outcome for outcome in stream(server.address, images, {"max_message_bytes": 1000})}
    assert [outcomes[index].get().width for index in (0, 5)] == [1, 2]
    errors = [outcomes[index].error for index in (1, 2, 3, 4)]
    kinds = [InvalidArgumentError, FileNotFoundError, TypeError, ResourceExhaustedError]
    assert [type(error) for error in errors] == kinds
    assert "`max_message_bytes` of the client is 1,000" in str(errors[3])
    with pytest.raises(InvalidArgumentError, match="INVALID_ARGUMENT: no image"):
        outcomes[1].get()


@both
def test_in_flight_limits_the_images_read_ahead(server: FakeServer, stream: Outcomes) -> None:
    received: list[int] = []

    def images() -> Iterator[bytes]:
        for index in range(12):
            # With one image in flight, the server has received all previous ones.
            received.append(len(server.requests))
            yield bytes(index + 1)

    assert len(stream(server.address, images(), in_flight=1)) == 12
    assert received == list(range(12))


@both
def test_images_in_flight_are_sent_again(server: FakeServer, stream: Outcomes) -> None:
    server.script = [succeed, UNAVAILABLE, UNAVAILABLE, succeed, succeed, UNAVAILABLE]
    assert widths(stream(server.address, [bytes(length) for length in range(1, 11)], in_flight=4)) == list(range(1, 11))
    assert len(set(server.request_ids)) == 1


@both
def test_retries_end(server: FakeServer, stream: Outcomes) -> None:
    server.script = [UNAVAILABLE] * 10
    with pytest.raises(UnavailableError):
        stream(server.address, [b"a"], {"retries": 2})
    assert len(server.requests) == 3


@both
def test_a_failure_of_the_whole_stream_is_raised(server: FakeServer, stream: Outcomes) -> None:
    # grpc.aio may lose a status that arrives during sending; the client then retries.
    server.script = [succeed, *[fail(grpc.StatusCode.NOT_FOUND, "gone")] * 10]
    with pytest.raises(NotFoundError, match="gone"):
        stream(server.address, [b"a", b"b", b"c"])


@both
def test_a_stream_without_progress_times_out(server: FakeServer, stream: Outcomes) -> None:
    server.script = [lambda context: server.hang.wait()] * 3
    with pytest.raises(DeadlineExceededError):
        stream(server.address, [b"a"], timeout_seconds=0.2)
    assert len(server.requests) <= 1


@both
def test_a_stream_may_outlast_its_connection(server: FakeServer, stream: Outcomes) -> None:
    server.script = [succeed, fail(grpc.StatusCode.DEADLINE_EXCEEDED)] * 4
    outcomes = stream(server.address, [bytes(length) for length in range(1, 6)], {"retries": 0}, in_flight=1)
    assert widths(outcomes) == [1, 2, 3, 4, 5]


@both
def test_an_error_of_the_iterator_propagates(server: FakeServer, stream: Outcomes) -> None:
    def images() -> Iterator[bytes]:
        yield b"a"
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        stream(server.address, images())


def test_closing_cancels_the_call_on_the_server(server: FakeServer) -> None:
    server.script = [succeed, lambda context: server.hang.wait()]
    with Client(server.address) as client:
        outcomes = client.classify_images([b"a", b"b"])
        assert next(outcomes).index == 0
        outcomes.close()
        assert server.stream_ended.wait(10)


def test_closing_cancels_the_call_on_the_server_async(server: FakeServer) -> None:
    server.script = [succeed, lambda context: server.hang.wait()]

    async def main() -> None:
        async with AsyncClient(server.address) as client:
            async with contextlib.aclosing(client.classify_images([b"a", b"b"])) as outcomes:
                assert (await anext(outcomes)).index == 0
            assert await asyncio.to_thread(server.stream_ended.wait, 10)

    asyncio.run(main())


def test_every_rejected_image_has_its_own_attempts() -> None:
    exchange = ImageExchange({}, Call("mine", 60.0, 1), in_flight=9, max_message_bytes=1000)
    for _ in range(9):
        exchange.add(lambda: b"a")
    exchange.start()
    busy = ClassifyImageStreamResponse()
    busy.error.code = grpc.StatusCode.UNAVAILABLE.value[0]
    for index in range(8):
        busy.image_id = index
        assert isinstance(exchange.take(busy), Resend)
    assert isinstance(exchange.take(busy), ImageOutcome)  # of the last image, whose only retry was used


def test_without_progress_an_image_has_its_own_error_before_the_connection_ends() -> None:
    exchange = ImageExchange({}, Call("mine", 0.1), in_flight=1, max_message_bytes=1000)
    exchange.add(lambda: b"a")
    exchange.start()
    time.sleep(0.1)
    busy = ClassifyImageStreamResponse()
    busy.error.code = grpc.StatusCode.UNAVAILABLE.value[0]
    outcome = exchange.take(busy)
    assert isinstance(outcome, ImageOutcome)
    assert isinstance(outcome.error, UnavailableError)


def result_of(index: int) -> ClassifyImageStreamResponse:
    return ClassifyImageStreamResponse(image_id=index, result=classified_image(b"a"))


class Server(Iterator[ClassifyImageStreamResponse]):
    """A call of gRPC's: it rejects the first image, and answers the second one once the first has come again."""

    def __init__(self, requests: Iterator[Any]) -> None:
        self._messages = self._answer(requests)

    def _answer(self, requests: Iterator[Any]) -> Iterator[ClassifyImageStreamResponse]:
        assert [next(requests).image_id for _ in range(2)] == [0, 1]
        busy = ClassifyImageStreamResponse()
        busy.error.code = grpc.StatusCode.UNAVAILABLE.value[0]
        yield busy
        assert next(requests).image_id == 0
        yield from map(result_of, range(2))

    def __next__(self) -> ClassifyImageStreamResponse:
        return next(self._messages)

    def cancel(self) -> None: ...


class AsyncServer:
    def __init__(self, requests: AsyncIterator[Any]) -> None:
        self._messages = self._answer(requests)

    async def _answer(self, requests: AsyncIterator[Any]) -> AsyncIterator[ClassifyImageStreamResponse]:
        assert [(await anext(requests)).image_id for _ in range(2)] == [0, 1]
        busy = ClassifyImageStreamResponse()
        busy.error.code = grpc.StatusCode.UNAVAILABLE.value[0]
        yield busy
        assert (await anext(requests)).image_id == 0
        for index in range(2):
            yield result_of(index)

    def __aiter__(self) -> AsyncIterator[ClassifyImageStreamResponse]:
        return self._messages

    def cancel(self) -> None: ...


@pytest.mark.parametrize("kind", [Server, AsyncServer])
def test_a_rejected_image_is_sent_again_while_another_is_waited_for(kind: type) -> None:
    channel: Any = SimpleNamespace(stream_stream=lambda *_, **__: lambda requests, **__: kind(requests))
    exchange = ImageExchange({}, Call("mine", 60.0), in_flight=2, max_message_bytes=1000)

    async def read() -> list[ImageOutcome]:
        return [outcome async for outcome in stream_images_async(channel, [b"a", b"b"], exchange)]

    found = list(stream_images(channel, [b"a", b"b"], exchange)) if kind is Server else asyncio.run(read())
    assert [(outcome.index, outcome.error) for outcome in found] == [(0, None), (1, None)]


def test_an_image_that_cannot_be_read_has_an_error_of_its_own(server: FakeServer) -> None:
    closed = io.BytesIO(b"b")
    closed.close()
    outcomes = stream_sync(server.address, [b"a", "a\0b", closed, "\ud800.png", b"c"])
    by_index = {outcome.index: outcome.error for outcome in outcomes}
    assert [isinstance(by_index[index], ValueError) for index in range(5)] == [False, True, True, True, False]


@pytest.fixture
def exchange() -> ImageExchange:
    """An exchange with one image in flight."""
    exchange = ImageExchange({}, Call("mine", 60.0, 1), in_flight=2, max_message_bytes=1000)
    exchange.add(lambda: b"a")
    return exchange


@pytest.mark.parametrize("message", [ClassifyImageStreamResponse(), ClassifyImageStreamResponse(image_id=7)])
def test_an_unexpected_response_is_an_error(exchange: ImageExchange, message: ClassifyImageStreamResponse) -> None:
    with pytest.raises(ServerError) as caught:
        exchange.take(message)
    assert caught.value.request_id == "mine"


def test_errors_and_retries_of_one_image(exchange: ImageExchange) -> None:
    busy = ClassifyImageStreamResponse()
    busy.error.code = grpc.StatusCode.UNAVAILABLE.value[0]
    again = exchange.take(busy)
    assert isinstance(again, Resend)
    assert again.request.image == b"a"
    outcome = exchange.take(busy)
    assert isinstance(outcome, ImageOutcome)
    assert isinstance(outcome.error, UnavailableError)
    assert exchange.pending == {}
    message = ClassifyImageStreamResponse()
    message.error.code = 999
    message.error.details.add().Pack(bad_field("image"))
    error = error_of_status(message.error, "mine")
    assert isinstance(error, ServerError)
    assert (error.code, error.violations[0].description) == ("UNKNOWN", "is empty")
