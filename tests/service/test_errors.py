"""Bad requests: the right status, one clear line, and a server that goes on."""

from typing import Any

import grpc
import pytest

from triptych.v1 import translation_pb2
from triptych.v1.translation_pb2_grpc import TranslationServiceStub
from triptych_client import Client, InvalidArgumentError, ResourceExhaustedError
from triptych_serving.errors import OverloadedError
from triptych_serving.models.translation.translator import Translator
from triptych_serving.scheduling.request import Call

from ..fixtures.toy import SOURCE, TARGET
from .conftest import MAX_MESSAGE_BYTES
from .support.messages import RED, ask, failure
from .support.processes import ServerProcess

INVALID, NOT_FOUND, CANNOT = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION)
WHOLE = {"split_sentences": translation_pb2.SPLIT_SENTENCES_OFF}
TRANSLATIONS: list[tuple[grpc.StatusCode, str, dict[str, Any]]] = [  # options and languages have tables in unit tests
    (INVALID, "contents: there are no texts", {"contents": []}),
    (INVALID, "contents[1]: the text is empty", {"contents": [SOURCE, ""]}),
    (INVALID, "contents[0]: 102 tokens are too long, the model takes at most", {"contents": ["1 " * 50], "options": WHOLE}),
    (NOT_FOUND, "version '9' of toy not found", {"model": "toy", "model_version": "9"}),
    (INVALID, "target_language_code: 'german' is not", {"target_language_code": "german"}),
    (INVALID, "mime_type: 'text/x' is not supported, send 'text/plain'", {"mime_type": "text/x"}),
    (NOT_FOUND, "model '漢漢漢", {"model": "漢" * 100_000}),
    (INVALID, "target_language_code: '漢漢漢", {"target_language_code": "漢" * 100_000}),
    (NOT_FOUND, r"model 'a\nb' not found", {"model": "a\nb"}),
    (INVALID, "options.beam_size: 33 is above the limit of 32", {"options": {"beam_size": 33}}),
    (INVALID, "options.target_prefix[0]: 14 tokens are", {"options": {"target_prefix": [TARGET], "max_length": 14}}),
]
OTHERS: list[tuple[str, grpc.StatusCode, str, dict[str, Any]]] = [  # of each kind and service; the others are in unit tests
    ("FillMask", INVALID, "contents: there are no texts", {"model": "fill-mask"}),
    ("FillMask", INVALID, "mime_type: 'text/html' is not", {"contents": ["[MASK]"], "mime_type": "text/html"}),
    ("FillMask", CANNOT, "model 'toy' is not one that fills masks; it", {"contents": ["[MASK]"], "model": "toy"}),
    ("FillMask", grpc.StatusCode.UNAVAILABLE, "model 'broken' cannot be", {"contents": ["[MASK]"], "model": "broken"}),
    ("EmbedText", INVALID, "pooling: 9 is unknown", {"contents": ["one"], "model": "fill-mask", "pooling": 9}),
    ("ClassifyText", INVALID, "inputs: there are no texts", {"model": "text-classification"}),
    ("Rerank", INVALID, "documents: there are no documents", {"query": "one"}),
    ("Rerank", CANNOT, "is not one that reranks documents; it", {"documents": ["one"], "model": "text-classification"}),
    ("ClassifyTokens", INVALID, "aggregation: 9 is unknown", {"contents": ["one"], "aggregation": 9}),
    ("AnswerQuestion", INVALID, "inputs[0].context: the text is empty", {"inputs": [{"question": "where?"}]}),
    ("ClassifyImage", INVALID, "images: there are no images", {}),
    ("ClassifyImage", INVALID, "images[1]: ", {"images": [RED, b"hello"]}),
]
BAD = [(method, *bad) for method in ("Translate", "TranslateStream") for bad in TRANSLATIONS]


def assert_serves(stub: TranslationServiceStub) -> None:
    response = stub.Translate(translation_pb2.TranslateRequest(contents=[SOURCE]))
    assert response.translations[0].translated_text == TARGET


@pytest.mark.parametrize(
    ("method", "code", "message", "fields"), [*BAD, *OTHERS], ids=lambda value: value[:40] if isinstance(value, str) else ""
)
def test_a_bad_request_is_refused_in_one_line(
    channel: grpc.Channel, translation: TranslationServiceStub, method: str, code: grpc.StatusCode, message: str, fields: Any
) -> None:
    fields = {"contents": [SOURCE], **fields} if method.startswith("Translate") else fields
    error = failure(lambda: ask(channel, method, (("x-request-id", "bad-1"),), **fields))
    assert error.code() is code
    assert message in error.details()
    assert len(error.details().splitlines()) == 1
    assert dict(error.trailing_metadata())["x-request-id"] == "bad-1"
    assert_serves(translation)


def test_calls_that_are_not_allowed_say_so(channel: grpc.Channel, translation: TranslationServiceStub) -> None:
    for name in ("LoadModel", "UnloadModel"):
        error = failure(lambda: ask(channel, name, name="toy"))  # noqa: B023 - called at once
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED
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
