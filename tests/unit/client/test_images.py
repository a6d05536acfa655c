"""Images, in one call and in a stream."""

import asyncio
import contextlib
import io
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import status_pb2

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
from triptych_client.images import ImageExchange, Resend
from triptych_client.status import error_of_status

from .conftest import Ask, ask_async
from .fake_server import FakeServer, bad_field, fail, succeed

Outcomes = Callable[..., list[ImageOutcome]]
UNAVAILABLE = fail(grpc.StatusCode.UNAVAILABLE)


@pytest.fixture
def stream(ask: Ask) -> Outcomes:
    """Makes a client, classifies images with it in a stream, and returns the outcomes."""

    def run(address: str, images: Any, settings: dict[str, Any] | None = None, **arguments: Any) -> list[ImageOutcome]:
        def question(client: Any) -> Any:
            outcomes = client.classify_images(images, **arguments)
            return list(outcomes) if isinstance(client, Client) else collect(outcomes)

        found: list[ImageOutcome] = ask(address, question, **settings or {})
        return found

    return run


async def collect(outcomes: AsyncIterator[ImageOutcome]) -> list[ImageOutcome]:
    return [outcome async for outcome in outcomes]


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

    found = ask_async(server.address, lambda client: collect(client.classify_images(images(), in_flight=2)))
    assert widths(found) == [1, 2, 3, 4, 5]


def test_bad_images_do_not_stop_the_others(server: FakeServer, stream: Outcomes, tmp_path: Path) -> None:
    closed = io.BytesIO(b"b")
    closed.close()
    images = [b"a", b"bad", tmp_path / "missing.png", 7, bytes(2000), b"ab", "a\0b", closed, "\ud800.png"]
    outcomes = {outcome.index: outcome for outcome in stream(server.address, images, {"max_message_bytes": 1000})}
    assert [outcomes[index].get().width for index in (0, 5)] == [1, 2]
    errors = [outcomes[index].error for index in (1, 2, 3, 4)]
    kinds = [InvalidArgumentError, FileNotFoundError, TypeError, ResourceExhaustedError]
    assert [type(error) for error in errors] == kinds
    assert "`max_message_bytes` of the client is 1,000" in str(errors[3])
    assert all(isinstance(outcomes[index].error, ValueError) for index in (6, 7, 8))
    with pytest.raises(InvalidArgumentError, match="INVALID_ARGUMENT: no image"):
        outcomes[1].get()


def test_in_flight_limits_the_images_read_ahead(server: FakeServer, stream: Outcomes) -> None:
    received: list[int] = []

    def images() -> Iterator[bytes]:
        for index in range(12):
            # With one image in flight, the server has received all previous ones.
            received.append(len(server.requests))
            yield bytes(index + 1)

    assert len(stream(server.address, images(), in_flight=1)) == 12
    assert received == list(range(12))


def test_images_in_flight_are_sent_again(server: FakeServer, stream: Outcomes) -> None:
    server.script = [succeed, UNAVAILABLE, UNAVAILABLE, succeed, succeed, UNAVAILABLE]
    assert widths(stream(server.address, [bytes(length) for length in range(1, 11)], in_flight=4)) == list(range(1, 11))
    assert len(set(server.request_ids)) == 1


def test_retries_end(server: FakeServer, stream: Outcomes) -> None:
    server.script = [UNAVAILABLE] * 10
    with pytest.raises(UnavailableError):
        stream(server.address, [b"a"], {"retries": 2})
    assert len(server.requests) == 3


def test_a_failure_of_the_whole_stream_is_raised(server: FakeServer, stream: Outcomes) -> None:
    # grpc.aio may lose a status that arrives during sending; the client then retries.
    server.script = [succeed, *[fail(grpc.StatusCode.NOT_FOUND, "gone")] * 10]
    with pytest.raises(NotFoundError, match="gone"):
        stream(server.address, [b"a", b"b", b"c"])


def test_a_stream_without_progress_times_out(server: FakeServer, stream: Outcomes) -> None:
    server.script = [lambda context: server.hang.wait()] * 3
    with pytest.raises(DeadlineExceededError):
        stream(server.address, [b"a"], timeout_seconds=0.2)
    assert len(server.requests) <= 1


def test_a_stream_may_outlast_its_connection(server: FakeServer, stream: Outcomes) -> None:
    server.script = [succeed, fail(grpc.StatusCode.DEADLINE_EXCEEDED)] * 4
    outcomes = stream(server.address, [bytes(length) for length in range(1, 6)], {"retries": 0}, in_flight=1)
    assert widths(outcomes) == [1, 2, 3, 4, 5]


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


def test_a_rejected_image_is_sent_again_while_another_is_waited_for(server: FakeServer, stream: Outcomes) -> None:
    outcomes = stream(server.address, [b"busy", b"late"], in_flight=2)
    assert [(outcome.index, outcome.error) for outcome in outcomes] == [(0, None), (1, None)]
    assert [request.image for request in server.requests] == [b"busy", b"late", b"busy"]


def exchange_of(images: int, timeout_seconds: float = 60.0) -> ImageExchange:
    """Return an exchange with these images in flight and one retry."""
    exchange = ImageExchange({}, Call("mine", timeout_seconds, 1), in_flight=9, max_message_bytes=1000)
    for _ in range(images):
        exchange.add(lambda: b"a")
    exchange.start()
    return exchange


def rejection(index: int = 0, code: int = grpc.StatusCode.UNAVAILABLE.value[0]) -> ClassifyImageStreamResponse:
    return ClassifyImageStreamResponse(image_id=index, error=status_pb2.Status(code=code))


def test_every_rejected_image_has_its_own_attempts() -> None:
    exchange = exchange_of(9)
    for index in range(8):
        again = exchange.take(rejection(index))
        assert isinstance(again, Resend)
        assert again.request.image == b"a"
    outcome = exchange.take(rejection(7))  # whose only retry was used
    assert isinstance(outcome, ImageOutcome)
    assert isinstance(outcome.error, UnavailableError)
    assert 7 not in exchange.pending


def test_without_progress_an_image_has_its_own_error_before_the_connection_ends() -> None:
    exchange = exchange_of(1, timeout_seconds=0.1)
    time.sleep(0.1)
    outcome = exchange.take(rejection())
    assert isinstance(outcome, ImageOutcome)
    assert isinstance(outcome.error, UnavailableError)


@pytest.mark.parametrize("message", [ClassifyImageStreamResponse(), ClassifyImageStreamResponse(image_id=7)])
def test_an_unexpected_response_is_an_error(message: ClassifyImageStreamResponse) -> None:
    with pytest.raises(ServerError) as caught:
        exchange_of(1).take(message)
    assert caught.value.request_id == "mine"


def test_unknown_codes_and_details_of_an_image() -> None:
    status = rejection(code=999).error
    status.details.add().Pack(bad_field("image"))
    error = error_of_status(status, "mine")
    assert isinstance(error, ServerError)
    assert (error.code, error.violations[0].description) == ("UNKNOWN", "is empty")
