"""A replica, without Ray."""

import asyncio
from collections.abc import Awaitable, Callable
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
from .fake_context import FakeContext

BY_NAME = {method.name: method for method in METHODS}
GOOD = translation_pb2.TranslateRequest(contents=[SOURCE]).SerializeToString()


class Kept(Replica):
    """A replica whose destructor only the test calls, and not the garbage collector too."""

    def __del__(self) -> None:
        """Do nothing."""


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], Awaitable[None]]], None]:
    """Run a coroutine with a replica."""
    monkeypatch.setattr(module, "_assigned", lambda: (1.0, 0.0))

    async def run(act: Callable[[Any], Awaitable[None]]) -> None:
        replica: Any = Kept.__new__(Kept)
        await replica.__init__(ReplicaOptions(models=str(MODELS)))
        try:
            await act(replica)
        finally:
            await Replica.__del__(replica)

    return lambda act: asyncio.run(run(act))


async def all_of(stream: Any) -> list[Any]:
    return [message async for message in stream]


def test_a_unary_call(scenario: Any) -> None:
    async def act(replica: Any) -> None:
        context = FakeContext(x_request_id="good-1")
        packed = await replica.Translate(GOOD, context)
        response = translation_pb2.TranslateResponse.FromString(packed.SerializeToString())
        assert response.translations[0].translated_text == TARGET
        assert (context.status, context.trailers) == (None, {"x-request-id": "good-1"})

    scenario(act)


def test_a_streamed_response(scenario: Any) -> None:
    async def act(replica: Any) -> None:
        messages = await all_of(replica.TranslateStream(GOOD, FakeContext()))
        events = [translation_pb2.TranslateStreamResponse.FromString(message.SerializeToString()) for message in messages]
        assert "".join(event.piece.text for event in events) == TARGET
        assert events[-1].WhichOneof("event") == "summary"

    scenario(act)


@pytest.mark.parametrize("request_", [b"", b"\xff\xff\xff"], ids=["empty", "no message"])
def test_errors_are_in_the_context(scenario: Any, request_: bytes) -> None:
    async def act(replica: Any) -> None:
        unary, stream = FakeContext(), FakeContext()
        assert await replica.Translate(request_, unary) == SerializedResponse(b"")
        [end] = await all_of(replica.TranslateStream(request_, stream))
        assert isinstance(end, EndOfStream)
        for context in (unary, stream):
            assert context.status is grpc.StatusCode.INVALID_ARGUMENT
            details = context.trailers["grpc-status-details-bin"]
            assert isinstance(details, bytes)
            assert status_pb2.Status.FromString(details).message == context.text

    scenario(act)


def test_cancelled_calls_leave_the_engine(scenario: Any) -> None:
    async def act(replica: Any) -> None:
        request = translation_pb2.TranslateRequest(contents=SOURCES * 20, options={"beam_size": 4, "min_length": 40})
        task = asyncio.create_task(replica.Translate(request.SerializeToString(), FakeContext()))
        engine = replica._server.registry.models[0].model.engine
        while sum(engine.load()) == 0:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while sum(engine.load()):
            await asyncio.sleep(0.01)

    scenario(act)


def test_health_depends_on_the_models(scenario: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(replica: Any) -> None:
        await replica.check_health()
        check = await replica.Check(b"", FakeContext())
        assert check.SerializeToString() == b"\x08\x01"
        monkeypatch.setattr(type(replica._server.registry), "ready", property(lambda self: []))
        with pytest.raises(UnavailableError):
            await replica.check_health()
        monkeypatch.undo()

    scenario(act)
