"""Images on one stream: each is answered when it is done, whatever becomes of the others."""

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_reflection.v1alpha import reflection_pb2_grpc

from triptych.v1 import image_classification_pb2
from triptych.v1.image_classification_pb2_grpc import ImageClassificationServiceStub
from triptych_serving.models.image import image_job as module
from triptych_serving.models.image import image_model
from triptych_serving.models.image.image_model import IN_FLIGHT
from triptych_serving.repository.registry import ModelSelector
from triptych_serving.server import Server

from ..fixtures.encoders import write_image_bundle, write_text_bundle
from ..unit.serving.calls import hold_calls
from .support.in_process import options_of, serving
from .support.messages import GREEN, RED, details_of
from .support.processes import eventually

Request = image_classification_pb2.ClassifyImageStreamRequest
INVALID, NOT_FOUND, CANNOT = 3, 5, 9  # google.rpc.Code


class Feed:
    """Requests that a test sends one by one."""

    def __init__(self, *requests: Request) -> None:
        self.taken = 0
        self._queue: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        for request in requests:
            self.send(request)

    def send(self, request: Request) -> None:
        self._queue.put(request)

    def end(self) -> None:
        self._queue.put(None)

    def __iter__(self) -> Iterator[Request]:
        while (request := self._queue.get()) is not None:
            self.taken += 1
            yield request


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    write_image_bundle(repository)
    write_text_bundle(repository)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(image_model, "usable_cpus", lambda: 2)  # threads that decode, of which a test holds one
        with serving(options_of(repository)) as server:
            yield server


@pytest.fixture
def stub(server: Server) -> Iterator[ImageClassificationServiceStub]:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield ImageClassificationServiceStub(channel)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Red images are not decoded before this is set."""
    yield from hold_calls(monkeypatch, module, "decode_image", lambda data, *_: data == RED)


def test_every_image_is_answered_under_its_own_id(stub: ImageClassificationServiceStub) -> None:
    requests = [Request(image_id=index, image=GREEN if index % 2 else RED, top_k=1) for index in range(3 * IN_FLIGHT)]
    responses = {response.image_id: response for response in stub.ClassifyImageStream(iter(requests))}
    assert responses.keys() == set(range(3 * IN_FLIGHT))
    for index, response in responses.items():
        assert response.result.labels[0].label == ("green" if index % 2 else "red")
        assert (response.result.width, response.result.height, response.model) == (9, 6, "image-classification")
        assert response.timing.inference_seconds > 0


def test_an_image_does_not_wait_for_a_slower_one(stub: ImageClassificationServiceStub, held: threading.Event) -> None:
    feed = Feed(Request(image_id=1, image=RED), Request(image_id=2, image=GREEN))
    responses = stub.ClassifyImageStream(iter(feed))
    assert next(responses).image_id == 2
    held.set()
    assert next(responses).image_id == 1
    feed.end()
    assert list(responses) == []


def test_a_bad_image_has_an_error_of_its_own(stub: ImageClassificationServiceStub) -> None:
    requests = [
        Request(image_id=1, image=b"hello"),
        Request(image_id=2, image=RED, model="foo"),
        Request(image_id=3, image=RED, model="fill-mask"),
        Request(image_id=4, image=RED, top_k=0),
        Request(image_id=5, image=GREEN),
    ]
    call = stub.ClassifyImageStream(iter(requests), metadata=(("x-request-id", "many-1"),))
    responses = {response.image_id: response for response in call}
    assert dict(call.trailing_metadata())["x-request-id"] == "many-1"
    assert responses[5].result.labels[0].label == "green"
    errors = {number: responses[number].error for number in (1, 2, 3, 4)}
    assert [error.code for error in errors.values()] == [INVALID, NOT_FOUND, CANNOT, INVALID]
    assert errors[1].message.startswith("image: ")
    assert details_of(errors[1], error_details_pb2.BadRequest).field_violations[0].field == "image"
    assert details_of(errors[4], error_details_pb2.BadRequest).field_violations[0].field == "top_k"
    assert details_of(errors[2], error_details_pb2.RequestInfo).request_id == "many-1"


def test_an_error_that_nobody_foresaw_is_internal_and_the_stream_goes_on(
    stub: ImageClassificationServiceStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = module.decode_image

    def fail(data: bytes, *arguments: Any) -> Any:
        if data == RED:
            raise ZeroDivisionError
        return decode(data, *arguments)

    monkeypatch.setattr(module, "decode_image", fail)
    requests = [Request(image_id=1, image=RED), Request(image_id=2, image=GREEN)]
    responses = {response.image_id: response for response in stub.ClassifyImageStream(iter(requests))}
    assert responses[1].error.message == "internal error; the server's log has the details under this request id"
    assert responses[2].result.labels[0].label == "green"


def test_a_full_model_refuses_an_image_with_a_delay(
    server: Server, stub: ImageClassificationServiceStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter = server.registry.find_image(ModelSelector()).limiter
    with monkeypatch.context() as patch:
        patch.setattr(limiter, "held", limiter.limit)
        [response] = stub.ClassifyImageStream(iter([Request(image=GREEN)]))
        assert details_of(response.error, error_details_pb2.RetryInfo).retry_delay.ToMilliseconds() > 0
    [response] = stub.ClassifyImageStream(iter([Request(image=GREEN)]))
    assert response.HasField("result")


def test_so_many_are_in_flight_and_no_more(server: Server, stub: ImageClassificationServiceStub, held: threading.Event) -> None:
    limiter = server.registry.find_image(ModelSelector()).limiter
    feed = Feed(*(Request(image_id=index, image=RED) for index in range(2 * IN_FLIGHT)))
    responses = stub.ClassifyImageStream(iter(feed))
    eventually(lambda: limiter.held == IN_FLIGHT)
    held.set()
    feed.end()
    assert len(list(responses)) == 2 * IN_FLIGHT
    eventually(lambda: limiter.held == 0)


def test_a_stream_that_is_cancelled_leaves_nothing_behind(
    server: Server, stub: ImageClassificationServiceStub, held: threading.Event
) -> None:
    model = server.registry.find_image(ModelSelector())
    responses = stub.ClassifyImageStream(iter(Feed(*(Request(image=RED) for _ in range(10)))))
    eventually(lambda: model.limiter.held == 10)
    responses.cancel()
    eventually(lambda: model.limiter.held == 0)
    held.set()
    eventually(lambda: model.engine.count_rows() == (0, 0))


def test_a_deadline_ends_the_stream(server: Server, stub: ImageClassificationServiceStub, held: threading.Event) -> None:
    responses = stub.ClassifyImageStream(iter(Feed(Request(image=RED))), timeout=0.3)
    with pytest.raises(grpc.RpcError) as error:
        list(responses)
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    held.set()
    eventually(lambda: server.registry.find_image(ModelSelector()).limiter.held == 0)


def test_bytes_that_are_no_message_end_the_stream_after_what_came_before(server: Server) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        raw = channel.stream_stream("/triptych.v1.ImageClassificationService/ClassifyImageStream")
        responses = raw(iter([Request(image_id=7, image=GREEN).SerializeToString(), b"\xff\xff\xff"]))
        first = image_classification_pb2.ClassifyImageStreamResponse.FromString(next(responses))
        assert first.image_id == 7
        with pytest.raises(grpc.RpcError) as error:
            next(responses)
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "x-request-id" in dict(error.value.trailing_metadata())


def test_a_stream_without_images_ends_well(stub: ImageClassificationServiceStub) -> None:
    assert list(stub.ClassifyImageStream(iter([]))) == []


def test_a_server_that_stops_answers_what_it_has_and_ends_its_streams(tmp_path: Path, held: threading.Event) -> None:
    write_image_bundle(tmp_path)
    with serving(options_of(tmp_path)) as server:
        channel = grpc.insecure_channel(f"127.0.0.1:{server.port}")
        idle = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter(Feed()))
        images = ImageClassificationServiceStub(channel).ClassifyImageStream(iter(Feed(Request(image_id=5, image=RED))))
        model = server.registry.find_image(ModelSelector())
        eventually(lambda: model.limiter.held == 1)
        threading.Timer(0.2, held.set).start()
    with channel:
        assert next(images).image_id == 5
        for stream in (images, idle):
            with pytest.raises(grpc.RpcError) as error:
                next(stream)
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "shutting down" in str(error.value.details())
