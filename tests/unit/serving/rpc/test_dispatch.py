"""The path of a call, with a stand-in for gRPC's context."""

import asyncio
import sys
from typing import Any

import grpc
import pytest
from grpc import aio

from triptych.v1 import translation_pb2
from triptych_serving.errors import NotFoundError
from triptych_serving.rpc.active_calls import ActiveCalls
from triptych_serving.rpc.dispatch import CallEnvironment, Router
from triptych_serving.rpc.limits import LimitOptions

SERVICE = "triptych.v1.TranslationService"
REQUEST = translation_pb2.TranslateRequest(contents=["a" * 1_000])


class Context:
    """Keeps the error of an aborted call, which has the call's frames, as gRPC does."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def peer(self) -> str:
        return "ipv4:10.0.0.1:40000"

    def set_trailing_metadata(self, metadata: Any) -> None:
        return

    def code(self) -> None:
        return

    async def abort(self, code: grpc.StatusCode, details: str, metadata: Any) -> None:
        self.details = details
        self.aborted = aio.AbortError("aborted")
        raise self.aborted


def handler_of(behaviour: Any, method: str = "Translate", limits: LimitOptions = LimitOptions()) -> Any:  # noqa: B008 - frozen
    router = Router(CallEnvironment(ActiveCalls(), message_limit=limits.messages))
    own = grpc.unary_unary_rpc_method_handler(behaviour, translation_pb2.TranslateRequest.FromString, bytes)
    router.add_registered_method_handlers(SERVICE, {method: own})
    return router.handler(f"/{SERVICE}/{method}").unary_unary


@pytest.mark.parametrize("limit", [100, 100_000], ids=["too large", "not found"])
def test_a_failed_call_does_not_keep_its_request(limit: int) -> None:
    async def fail(request: Any, context: Any) -> None:
        raise NotFoundError(f"nothing of {len(request.contents)} texts")

    message, context = REQUEST.SerializeToString(), Context()
    before = sys.getrefcount(message)
    with pytest.raises(aio.AbortError):
        asyncio.run(handler_of(fail, limits=LimitOptions(text_message_bytes=limit))(message, context))
    assert context.aborted.__traceback__
    assert sys.getrefcount(message) == before


def test_packed_responses_are_sent_as_they_are() -> None:
    async def answer(request: Any, context: Any) -> bytes:
        return b"packed"

    assert asyncio.run(handler_of(answer)(REQUEST.SerializeToString(), Context())) == b"packed"


@pytest.mark.parametrize("size", [1, 1 << 20], ids=["small", "large"])
def test_parts_of_a_response_are_joined(size: int) -> None:
    async def answer(request: Any, context: Any) -> list[bytes]:
        return [b"a" * size, b"bc"]

    assert asyncio.run(handler_of(answer)(REQUEST.SerializeToString(), Context())) == b"a" * size + b"bc"


def test_parts_above_the_limit_are_not_joined() -> None:
    async def answer(request: Any, context: Any) -> list[bytes]:
        return [b"a" * 2_000, b"b" * 2_000]

    context = Context()
    with pytest.raises(aio.AbortError):
        asyncio.run(handler_of(answer, limits=LimitOptions(message_bytes=3_000))(REQUEST.SerializeToString(), context))
    assert "response would have 4,000 bytes, at most 3,000 are sent" in context.details


@pytest.mark.parametrize(("method", "refused"), [("Translate", True), ("TranslateDocument", False)])
def test_only_texts_have_the_lower_limit_of_messages(method: str, refused: bool) -> None:
    async def answer(request: Any, context: Any) -> bytes:
        return b""

    context, limits = Context(), LimitOptions(text_message_bytes=100)
    call = handler_of(answer, method, limits)(REQUEST.SerializeToString(), context)
    if not refused:
        assert asyncio.run(call) == b""
        return
    with pytest.raises(aio.AbortError):
        asyncio.run(call)
    assert "at most 100 are accepted (--max-text-message-bytes)" in context.details


def test_a_long_list_is_refused_before_it_is_parsed() -> None:
    async def answer(request: Any, context: Any) -> None:
        pytest.fail("parsed")

    many = translation_pb2.TranslateRequest(contents=["a"] * 1_025).SerializeToString()
    handler, context = handler_of(answer, limits=LimitOptions(queue_rows=1)), Context()
    with pytest.raises(aio.AbortError):
        asyncio.run(handler(many, context))
    assert context.details.startswith("contents: at least 1,025 elements in one request, at most 1,024 can wait")
