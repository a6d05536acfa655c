"""Admission of document calls, and receiving a document."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack
from typing import Any
from unittest import mock

import grpc
import pytest

from triptych.v1.translation_pb2 import DocumentConfig, TranslateDocumentRequest
from triptych_serving.errors import DeadlineError, InvalidInputError, OverloadedError
from triptych_serving.rpc.limits import LimitOptions
from triptych_serving.services.documents import calls as document_calls
from triptych_serving.services.documents.calls import DocumentCalls, receive_config, receive_document
from triptych_serving.services.documents.codec import Response

from ...calls import in_loop

LIMIT = 10
NOTHING: Any = None


def config(**members: Any) -> TranslateDocumentRequest:
    return TranslateDocumentRequest(config=DocumentConfig(**members))


def chunk(content: bytes) -> TranslateDocumentRequest:
    return TranslateDocumentRequest(chunk=content)


def receive(*requests: TranslateDocumentRequest, hangs: bool = False) -> bytes:
    async def send() -> AsyncIterator[TranslateDocumentRequest]:
        for request in requests:
            yield request
        if hangs:
            await asyncio.Event().wait()

    async def main() -> bytes:
        sent = send()
        found = await receive_config(sent, LIMIT)
        assert found == requests[0].config
        return await receive_document(sent, found, LIMIT)

    return asyncio.run(main())


def test_chunks_are_joined() -> None:
    assert receive(config(), chunk(b"abc"), chunk(b""), chunk(b"def")) == b"abcdef"
    assert receive(config(total_bytes=3), chunk(b"abc")) == b"abc"
    assert receive(config(total_bytes=0)) == b""
    assert receive(config(), chunk(b"a" * LIMIT)) == b"a" * LIMIT


@pytest.mark.parametrize(
    ("requests", "field", "problem"),
    [
        ([], "config", "missing; it must be the first message"),
        ([chunk(b"a")], "config", "missing; it must be the first message"),
        ([TranslateDocumentRequest()], "config", "missing; it must be the first message"),
        ([config(), config()], "chunk", "every message after the first"),
        ([config(), TranslateDocumentRequest()], "chunk", "every message after the first"),
        ([config(total_bytes=11)], "config.total_bytes", r"has 11 bytes, at most 10 are accepted \(--max-document-bytes\)"),
        ([config(), chunk(b"a" * 6), chunk(b"a" * 6)], "document", "has more than 10 bytes, at most 10 are accepted"),
        ([config(total_bytes=4), chunk(b"abc")], "config.total_bytes", "4 bytes were announced, 3 were received"),
    ],
)
def test_invalid_stream_is_rejected(requests: list[TranslateDocumentRequest], field: str, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^{field}: .*{problem}"):
        receive(*requests)


@pytest.mark.parametrize("requests", [[], [config()], [config(), chunk(b"a")]])
def test_idle_caller_is_cut_off(requests: list[TranslateDocumentRequest], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_calls, "RECEIVE_SECONDS", 0.01)
    with pytest.raises(DeadlineError, match=r"incomplete; it may take 0\.01 s, and a second more for each 16,384 bytes"):
        receive(*requests, hangs=True)


@in_loop
async def test_concurrent_documents_and_their_bytes_are_limited() -> None:
    calls = DocumentCalls(NOTHING, LimitOptions(documents=2, document_bytes=5), NOTHING)
    message = r"2 documents are being translated, at most 2 are allowed \(--max-documents\)"
    async with calls._places:
        calls._check_places()
        async with calls._places:
            with pytest.raises(OverloadedError, match=message):
                calls._check_places()
    calls._check_places()
    with ExitStack() as stack:
        for _ in range(16):
            stack.enter_context(calls._receive())
        with pytest.raises(OverloadedError, match="16 documents are being received, at most 16"), calls._receive():
            pass
    with calls._memory() as hold, calls._memory() as other:
        hold(4)
        other(6)
        with pytest.raises(OverloadedError, match="documents of 10 bytes are in memory, at most 10"):
            hold(1)
    assert (calls.receiving, calls.held_bytes) == (0, 0)


class StuckCalls(DocumentCalls):
    """Calls that yield one response and then nothing."""

    async def _translate(self, requests: Any, context: Any) -> AsyncGenerator[Response]:
        yield Response(chunk=b"one")
        await asyncio.Event().wait()


@in_loop
async def test_the_time_of_a_document_is_limited() -> None:
    calls = StuckCalls(NOTHING, LimitOptions(document_seconds=0.01), NOTHING)
    with pytest.raises(DeadlineError, match=r"longer than 0\.01 s \(--max-document-secs\)"):
        assert [response async for response in calls.translate(NOTHING, NOTHING)] == []


@in_loop
async def test_a_caller_that_reads_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_calls, "SEND_SECONDS", 0.01)
    context = mock.AsyncMock()

    async def send() -> None:
        async for _ in StuckCalls(NOTHING, LimitOptions(), NOTHING).translate(NOTHING, context):
            await asyncio.Event().wait()  # as gRPC does while its flow control holds back a response

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(send())
    context.abort.assert_awaited_once_with(grpc.StatusCode.DEADLINE_EXCEEDED, "no response was read for 0.01 s")
