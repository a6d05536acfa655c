"""Admission of document calls, and receiving a document."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from triptych.v1.translation_pb2 import DocumentConfig, TranslateDocumentRequest
from triptych_serving.errors import DeadlineError, InvalidInputError, OverloadedError
from triptych_serving.rpc.limits import LimitOptions
from triptych_serving.services.documents import calls as document_calls
from triptych_serving.services.documents.calls import DocumentCalls, receive_config, receive_document

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
    with pytest.raises(InvalidInputError, match=problem) as error:
        receive(*requests)
    assert error.value.field == field


@pytest.mark.parametrize("requests", [[], [config()], [config(), chunk(b"a")]])
def test_idle_caller_is_cut_off(requests: list[TranslateDocumentRequest], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_calls, "IDLE_SECONDS", 0.01)
    with pytest.raises(DeadlineError, match=r"nothing was received for 0\.01 s"):
        receive(*requests, hangs=True)


def test_concurrent_documents_are_limited() -> None:
    calls = DocumentCalls(NOTHING, LimitOptions(documents=2), NOTHING)
    message = r"2 documents are being translated, at most 2 are allowed \(--max-documents\)"
    with calls._admit():
        with calls._admit(), pytest.raises(OverloadedError, match=message), calls._admit():
            pass
        assert calls.active == 1
        with pytest.raises(ZeroDivisionError), calls._admit():
            raise ZeroDivisionError
    assert calls.active == 0
