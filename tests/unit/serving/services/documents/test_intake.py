"""A document on its way in."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from triptych.v1.translation_pb2 import DocumentConfig, TranslateDocumentRequest
from triptych_serving.errors import DeadlineError, InvalidInputError, OverloadedError
from triptych_serving.services.documents import intake as documentintake
from triptych_serving.services.documents.intake import Intake
from triptych_serving.services.documents.slots import Places

LIMIT = 10


def config(**members: Any) -> TranslateDocumentRequest:
    return TranslateDocumentRequest(config=DocumentConfig(**members))


def chunk(content: bytes) -> TranslateDocumentRequest:
    return TranslateDocumentRequest(chunk=content)


def take_in(*requests: TranslateDocumentRequest, hangs: bool = False) -> bytes:
    async def send() -> AsyncIterator[TranslateDocumentRequest]:
        for request in requests:
            yield request
        if hangs:
            await asyncio.Event().wait()

    async def main() -> bytes:
        intake = Intake(send(), LIMIT)
        assert await intake.config() == requests[0].config
        return await intake.document()

    return asyncio.run(main())


def test_chunks_are_put_together() -> None:
    assert take_in(config(), chunk(b"abc"), chunk(b""), chunk(b"def")) == b"abcdef"
    assert take_in(config(total_bytes=3), chunk(b"abc")) == b"abc"
    assert take_in(config(total_bytes=0)) == b""
    assert take_in(config(), chunk(b"a" * LIMIT)) == b"a" * LIMIT


@pytest.mark.parametrize(
    ("requests", "field", "problem"),
    [
        ([], "config", "must be the first message"),
        ([chunk(b"a")], "config", "must be the first message"),
        ([TranslateDocumentRequest()], "config", "must be the first message"),
        ([config(), config()], "chunk", "every message behind the first one"),
        ([config(), TranslateDocumentRequest()], "chunk", "every message behind the first one"),
        (
            [config(total_bytes=11)],
            "config.total_bytes",
            r"has 11 bytes, this server takes at most 10 \(--max-document-bytes\)",
        ),
        ([config(), chunk(b"a" * 6), chunk(b"a" * 6)], "document", "has more than 10 bytes, this server takes at most 10"),
        ([config(total_bytes=4), chunk(b"abc")], "config.total_bytes", "4 bytes were announced, 3 have come"),
    ],
)
def test_what_is_no_document(requests: list[TranslateDocumentRequest], field: str, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem) as error:
        take_in(*requests)
    assert error.value.field == field


@pytest.mark.parametrize("requests", [[], [config()], [config(), chunk(b"a")]])
def test_who_sends_nothing_more_loses_his_place(
    requests: list[TranslateDocumentRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documentintake, "IDLE_SECONDS", 0.01)
    with pytest.raises(DeadlineError, match=r"nothing more came for 0\.01 s"):
        take_in(*requests, hangs=True)


def test_places_are_given_back() -> None:
    places = Places(2)
    with places.hold():
        with (
            places.hold(),
            pytest.raises(OverloadedError, match=r"2 documents are being translated.*--max-documents"),
            places.hold(),
        ):
            pass
        assert places.held == 1
        with pytest.raises(ZeroDivisionError), places.hold():
            raise ZeroDivisionError
    assert places.held == 0
