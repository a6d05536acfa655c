"""A replica, without Ray."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import grpc
import pytest
from google.rpc import status_pb2

from triptych.v1 import translation_pb2
from triptych_ray import replica as module
from triptych_ray.methods import METHODS
from triptych_ray.options import ReplicaOptions
from triptych_ray.replica import EndOfStream, Replica, SerializedResponse
from triptych_serving.errors import UnavailableError

from ...fixtures.toy import MODELS, SOURCE, SOURCES, TARGET

BY_NAME = {method.name: method for method in METHODS}
GOOD = translation_pb2.TranslateRequest(contents=[SOURCE]).SerializeToString()


class FakeContext:
    """The part of `ray.serve.grpc_util.RayServegRPCContext` that is used."""

    def __init__(self, **metadata: str) -> None:
        self.sent = [(key.replace("_", "-"), value) for key, value in metadata.items()]
        self.status: grpc.StatusCode | None = None
        self.text = ""
        self.trailers: dict[str, str | bytes] = {}

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return self.sent

    def peer(self) -> str:
        return "ipv4:192.0.2.1:5"

    def code(self) -> grpc.StatusCode | None:
        return self.status

    def set_code(self, code: grpc.StatusCode) -> None:
        self.status = code

    def set_details(self, details: str) -> None:
        self.text = details

    def set_trailing_metadata(self, metadata: list[tuple[str, str | bytes]]) -> None:
        assert isinstance(metadata, list)  # Ray adds its own list to it
        self.trailers = dict(metadata)


class Kept(Replica):
    """A replica whose destructor only the test calls, and not the garbage collector too."""

    def __del__(self) -> None:
        """Do nothing."""


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as loop:
        yield loop


@pytest.fixture
def replica(loop: asyncio.Runner, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(module, "_assigned", lambda: (1.0, 0.0))
    replica: Any = Kept.__new__(Kept)
    loop.run(replica.__init__(ReplicaOptions(models=str(MODELS))))
    yield replica
    end: Coroutine[Any, Any, None] = Replica.__del__(replica)
    loop.run(end)


async def all_of(stream: Any) -> list[Any]:
    return [message async for message in stream]


def test_a_unary_call(loop: asyncio.Runner, replica: Any) -> None:
    context = FakeContext(x_request_id="good-1")
    packed = loop.run(replica.Translate(GOOD, context))
    response = translation_pb2.TranslateResponse.FromString(packed.SerializeToString())
    assert response.translations[0].translated_text == TARGET
    assert (context.status, context.trailers) == (None, {"x-request-id": "good-1"})


def test_a_streamed_response(loop: asyncio.Runner, replica: Any) -> None:
    messages = loop.run(all_of(replica.TranslateStream(GOOD, FakeContext())))
    events = [translation_pb2.TranslateStreamResponse.FromString(message.SerializeToString()) for message in messages]
    assert "".join(event.piece.text for event in events) == TARGET
    assert events[-1].WhichOneof("event") == "summary"


def test_errors_are_in_the_context(loop: asyncio.Runner, replica: Any) -> None:
    for request in (b"", b"\xff\xff\xff"):  # empty, and no message
        unary, stream = FakeContext(), FakeContext()
        assert loop.run(replica.Translate(request, unary)) == SerializedResponse(b"")
        [end] = loop.run(all_of(replica.TranslateStream(request, stream)))
        assert isinstance(end, EndOfStream)
        for context in (unary, stream):
            assert context.status is grpc.StatusCode.INVALID_ARGUMENT
            details = context.trailers["grpc-status-details-bin"]
            assert isinstance(details, bytes)
            assert status_pb2.Status.FromString(details).message == context.text


def test_cancelled_calls_leave_the_engine(loop: asyncio.Runner, replica: Any) -> None:
    async def act() -> None:
        request = translation_pb2.TranslateRequest(contents=SOURCES * 4, options={"beam_size": 4, "min_length": 40})
        task = asyncio.create_task(replica.Translate(request.SerializeToString(), FakeContext()))
        engine = replica.server.registry.models[0].model.engine
        while sum(engine.count_rows()) == 0:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while sum(engine.count_rows()):
            await asyncio.sleep(0.01)

    loop.run(act())


def test_health_depends_on_the_models(loop: asyncio.Runner, replica: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loop.run(replica.check_health())
    assert loop.run(replica.Check(b"", FakeContext())).SerializeToString() == b"\x08\x01"
    with monkeypatch.context() as patch:
        patch.setattr(type(replica.server.registry), "ready", property(lambda self: []))
        with pytest.raises(UnavailableError):
            loop.run(replica.check_health())
