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


def answering(response: Any, **arguments: Any) -> Any:
    async def answer(request: Any, context: Any) -> Any:
        return response

    return handler_of(answer, **arguments)


def rejection(handler: Any, message: bytes = REQUEST.SerializeToString()) -> str:
    context = Context()
    with pytest.raises(aio.AbortError):
        asyncio.run(handler(message, context))
    return context.details


@pytest.mark.parametrize(
    "response", [b"packed", [b"a", b"bc"], [b"a" * (1 << 20), b"bc"]], ids=["packed", "in parts", "in large parts"]
)
def test_parts_of_a_response_are_joined(response: bytes | list[bytes]) -> None:
    expected = b"".join([response] if isinstance(response, bytes) else response)
    assert asyncio.run(answering(response)(REQUEST.SerializeToString(), Context())) == expected


def test_parts_above_the_limit_are_not_joined() -> None:
    handler = answering([b"a" * 2_000, b"b" * 2_000], limits=LimitOptions(message_bytes=3_000))
    assert "response would have 4,000 bytes, at most 3,000 are sent" in rejection(handler)


def test_only_texts_have_the_lower_limit_of_messages() -> None:
    limits = LimitOptions(text_message_bytes=100)
    assert "at most 100 are accepted (--max-text-message-bytes)" in rejection(answering(b"", limits=limits))
    document = answering(b"", method="TranslateDocument", limits=limits)
    assert asyncio.run(document(REQUEST.SerializeToString(), Context())) == b""


def test_a_long_list_is_refused_before_it_is_parsed() -> None:
    async def answer(request: Any, context: Any) -> None:
        pytest.fail("parsed")

    many = translation_pb2.TranslateRequest(contents=["a"] * 1_025).SerializeToString()
    details = rejection(handler_of(answer, limits=LimitOptions(queue_rows=1)), many)
    assert details.startswith("contents: at least 1,025 elements in one request, at most 1,024 can wait")
    config = translation_pb2.TranslateDocumentRequest(config=translation_pb2.DocumentConfig(keep=["a"] * 10_001))
    details = rejection(handler_of(answer, "TranslateDocument", limits=LimitOptions(queue_rows=1)), config.SerializeToString())
    assert details == "config.keep: at least 10,001 elements in one request, at most 10,000 are allowed; send fewer"
