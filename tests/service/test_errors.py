"""Bad requests: the right status, one clear line, and a server that goes on."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from triptych.v1 import translation_pb2
from triptych.v1.translation_pb2_grpc import TranslationServiceStub
from triptych_client import (
    AsyncClient,
    Client,
    DeadlineExceededError,
    DecodingOptions,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from triptych_serving.errors import OverloadedError
from triptych_serving.models.translation.translator import Translator
from triptych_serving.scheduling.request import Call

from ..fixtures.toy import SOURCE, SOURCES, TARGET
from .conftest import MAX_MESSAGE_BYTES
from .support.messages import ask, failure
from .support.processes import ServerProcess

INVALID, NOT_FOUND, DENIED, EXHAUSTED = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)


@dataclass(frozen=True)
class Bad:
    """A request that must fail, and how."""

    name: str
    code: grpc.StatusCode
    message: str
    fields: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def request(self, kind: type[Any]) -> Any:
        fields: dict[str, Any] = {"contents": [SOURCE], **self.fields}
        return kind(**fields, options=translation_pb2.DecodingOptions(**self.options))


BAD = [  # options and languages have tables of their own in unit tests
    Bad("no texts", INVALID, "contents: there are no texts", {"contents": []}),
    Bad("empty text", INVALID, "contents[1]: the text is empty", {"contents": [SOURCE, ""]}),
    Bad(
        "long whole",
        INVALID,
        "contents[0]: 102 tokens are too long, the model takes at most 64 tokens; split the text",
        {"contents": ["1 " * 50]},
        {"split_sentences": translation_pb2.SPLIT_SENTENCES_OFF},
    ),
    Bad("unknown version", NOT_FOUND, "version '9' of toy not found", {"model": "toy", "model_version": "9"}),
    Bad("malformed target", INVALID, "target_language_code: 'german' is not", {"target_language_code": "german"}),
    Bad("html", INVALID, "mime_type: 'text/html' is not supported, send 'text/plain'", {"mime_type": "text/html"}),
    Bad("endless model", NOT_FOUND, "model '漢漢漢", {"model": "漢" * 100_000}),
    Bad("endless language", INVALID, "target_language_code: '漢漢漢", {"target_language_code": "漢" * 100_000}),
    Bad("multi-line model", NOT_FOUND, r"model 'a\nb' not found", {"model": "a\nb"}),
    Bad("beam_size 33", INVALID, "options.beam_size: 33 is above the limit of 32", options={"beam_size": 33}),
    Bad(
        "long prefix",
        INVALID,
        "options.target_prefix[0]: 14 tokens are too long, they must be less than max_length, which is 14",
        options={"target_prefix": [TARGET], "max_length": 14},
    ),
]


def assert_serves(stub: TranslationServiceStub) -> None:
    response = stub.Translate(translation_pb2.TranslateRequest(contents=[SOURCE]))
    assert response.translations[0].translated_text == TARGET


@pytest.mark.parametrize("streams", [False, True], ids=["call", "stream"])
@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_a_bad_request_is_refused_in_one_line(translation: TranslationServiceStub, bad: Bad, streams: bool) -> None:
    metadata = (("x-request-id", "bad-1"),)
    if streams:
        request = bad.request(translation_pb2.TranslateStreamRequest)
        error = failure(lambda: list(translation.TranslateStream(request, metadata=metadata)))
    else:
        request = bad.request(translation_pb2.TranslateRequest)
        error = failure(lambda: translation.Translate(request, metadata=metadata))
    assert error.code() is bad.code
    assert bad.message in error.details()
    assert len(error.details().splitlines()) == 1
    assert dict(error.trailing_metadata())["x-request-id"] == "bad-1"
    assert_serves(translation)


def test_calls_that_are_not_allowed_say_so(channel: grpc.Channel, translation: TranslationServiceStub) -> None:
    for name in ("LoadModel", "UnloadModel"):
        error = failure(lambda: ask(channel, name, name="toy"))  # noqa: B023 - called at once
        assert error.code() is DENIED
        assert error.details() == (
            f"{name} is disabled: start the server with --model-control explicit, "
            "and with --allow-admin or an API key with the role admin"
        )
    unknown = channel.unary_unary("/triptych.v1.TranslationService/Sing")
    assert failure(lambda: unknown(b"")).code() is grpc.StatusCode.UNIMPLEMENTED
    assert_serves(translation)


LATIN_1 = b"\x0a\x03M\xe4d"  # contents: "Mäd", as other languages' protobuf sends it unchecked


@pytest.mark.parametrize("message", [b"\xff\xff\xff", LATIN_1])
def test_bytes_that_are_no_message(channel: grpc.Channel, translation: TranslationServiceStub, message: bytes) -> None:
    raw = channel.unary_unary("/triptych.v1.TranslationService/Translate")
    error = failure(lambda: raw(message))
    assert error.code() is INVALID
    assert error.details() == "request: not a valid message of this method's request type; strings must be UTF-8"
    assert_serves(translation)


@pytest.mark.parametrize("algorithm", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_messages_are_refused_before_they_are_unpacked(
    translation: TranslationServiceStub, algorithm: grpc.Compression
) -> None:
    bomb = translation_pb2.TranslateRequest(contents=["a" * MAX_MESSAGE_BYTES])
    error = failure(lambda: translation.Translate(bomb, compression=algorithm))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert_serves(translation)


def test_more_rows_than_the_queue_can_ever_hold_are_refused_for_good(server: ServerProcess) -> None:
    with Client(server.address, texts_per_call=100_000, retries=0) as client:
        with pytest.raises(InvalidArgumentError, match="16,385 elements in one request, at most 16,384 can wait"):
            client.translate_many(["a"] * 16_385)
        assert client.translate(SOURCE).text == TARGET


def test_a_full_queue_refuses_with_a_delay(paced_server: tuple[str, Translator], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(call: Call) -> None:
        raise OverloadedError("the queue is full: 9 rows wait, 2 more exceed 10", 0.25)

    address, translator = paced_server
    with Client(address, retries=0) as client:
        with monkeypatch.context() as patch:
            patch.setattr(translator.engine, "submit", full)
            with pytest.raises(ResourceExhaustedError, match="the queue is full: 9 rows wait") as error:
                client.translate(SOURCE)
        assert error.value.retry_delay_seconds == 0.25
        assert client.translate(SOURCE).text == TARGET


def test_the_clients_raise_their_own_errors(server: ServerProcess) -> None:
    with Client(server.address) as client:
        with pytest.raises(InvalidArgumentError) as invalid:
            client.translate_many([SOURCE, " "], fail_fast=True)
        assert [violation.field for violation in invalid.value.violations] == ["contents[1]"]
        results = client.translate([SOURCE, " ", "1 " * 500, SOURCE])
        assert [error.violations[0].field for error in results.errors.values()] == ["contents[1]", "contents[2]"]
        assert results[3].text == TARGET
        with pytest.raises(NotFoundError, match="model 'foo' not found"):
            client.translate(SOURCE, model="foo")
        with pytest.raises(DeadlineExceededError):
            client.translate_many(SOURCES * 20, options=DecodingOptions(), timeout_seconds=0.001)

    async def main() -> None:
        async with AsyncClient(server.address) as client:
            with pytest.raises(InvalidArgumentError):
                await client.translate("")
            with pytest.raises(NotFoundError):
                async for _ in client.translate_stream(SOURCE, target_language="fr"):
                    pass
            assert (await client.translate(SOURCE)).text == TARGET

    asyncio.run(main())


def test_a_panic_of_a_library_is_internal_and_no_more(
    paced_server: tuple[str, Translator], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Panic(BaseException):
        """An exception outside Exception, as libraries written in Rust raise."""

    address, translator = paced_server
    with grpc.insecure_channel(address) as channel:
        stub = TranslationServiceStub(channel)

        def fail(*arguments: object) -> None:
            raise Panic("index out of bounds")

        with monkeypatch.context() as patch:
            patch.setattr(translator, "output_steps", fail)
            request = translation_pb2.TranslateRequest(contents=[SOURCE])
            assert failure(lambda: stub.Translate(request)).code() is grpc.StatusCode.INTERNAL
            stream = translation_pb2.TranslateStreamRequest(contents=[SOURCE])
            assert failure(lambda: list(stub.TranslateStream(stream))).code() is grpc.StatusCode.INTERNAL
        assert stub.Translate(request).translations[0].translated_text == TARGET
