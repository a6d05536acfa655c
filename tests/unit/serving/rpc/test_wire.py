"""Lists are counted before a message is parsed; large messages are made of parts."""

import re
from contextlib import nullcontext
from typing import Any

import pytest
from google.protobuf.message import DecodeError

from triptych.inference import open_inference_pb2 as oip
from triptych.v1 import embedding_pb2, text_generation_pb2, translation_pb2
from triptych_serving.rpc.wire import CHUNK, FIELDS, LongListError, check_lists, chunks, join, lists_of, nested

MOST = 100
Options = translation_pb2.DecodingOptions


def tensor(elements: int) -> oip.ModelInferRequest.InferInputTensor:
    return oip.ModelInferRequest.InferInputTensor(contents=oip.InferTensorContents(bytes_contents=[b"a"] * elements))


MESSAGES = [
    (lambda n: translation_pb2.TranslateRequest(model="m" * 500, contents=[""] * n), "contents"),
    (lambda n: translation_pb2.TranslateRequest(options=Options(target_prefix=["ä"] * n)), "options.target_prefix"),
    (lambda n: translation_pb2.ScoreTranslationsRequest(pairs=[translation_pb2.TranslationPair(source="a")] * n), "pairs"),
    (lambda n: oip.ModelInferRequest(inputs=[tensor(n), tensor(MOST)]), "inputs.contents.bytes_contents"),
    (lambda n: oip.ModelInferRequest(inputs=[tensor(n)] * 4), "inputs.contents.bytes_contents"),  # in all: 4 x 100 and 4 inputs
    (
        lambda n: text_generation_pb2.GenerateRequest(template_variables={"a": {"b": [[0] * n]}}),
        "template_variables.fields.value.struct_value.fields.value.list_value.values.list_value.values",
    ),
]


@pytest.mark.parametrize(("make", "path"), MESSAGES)
def test_a_long_list_is_named(make: Any, path: str) -> None:
    few, many = make(MOST - 1), make(MOST + 1)
    check_lists(few.SerializeToString(), lists_of(few.DESCRIPTOR), MOST)
    with pytest.raises(LongListError, match=f"^{re.escape(path)}$"):
        check_lists(many.SerializeToString(), lists_of(many.DESCRIPTOR), MOST)


@pytest.mark.parametrize("tail", [b"", b"\x0a", b"\x0a\xff", b"\xff" * 300, b"\x0a\x05ab", b"\x0b\x0c\x0a\x00", b"\x3d\x00"])
def test_what_is_no_message_is_left_to_the_parser(tail: bytes) -> None:
    message = translation_pb2.TranslateRequest(contents=["a" * 300]).SerializeToString() + tail
    check_lists(message, lists_of(translation_pb2.TranslateRequest.DESCRIPTOR), MOST)


@pytest.mark.parametrize("field", [b"\x0a\x00", b"\x78\x00", b"\xfb\x7f\xfc\x7f"], ids=["text", "number", "unknown group"])
def test_fields_that_are_no_lists_are_counted(field: bytes) -> None:
    """Millions of them would take seconds."""
    lists = lists_of(oip.ModelInferRequest.DESCRIPTOR)
    check_lists(field * (FIELDS * MOST // 2), lists, MOST)
    with pytest.raises(LongListError, match=r"^$"):
        check_lists(field * (FIELDS * MOST + 1), lists, MOST)


@pytest.mark.parametrize("around", [("\xfb\x7f\xfc\x7f", ""), ("\xfb\x7f\x0a\x00", "\x0a\x00\xfc\x7f")], ids=["empty", "full"])
def test_elements_behind_an_unknown_group_are_counted(around: tuple[str, str]) -> None:
    """The parser keeps such a group, of field 2,047, as unknown bytes."""
    begin, end = (part.encode("latin-1") for part in around)
    for count, is_long in ((MOST, False), (MOST + 1, True)):
        message = begin + end + translation_pb2.TranslateRequest(contents=["ab"] * count).SerializeToString()
        assert len(translation_pb2.TranslateRequest.FromString(message).contents) == count
        with pytest.raises(LongListError) if is_long else nullcontext():
            check_lists(message, lists_of(translation_pb2.TranslateRequest.DESCRIPTOR), MOST)


def test_messages_that_are_nested_too_deep_are_left_to_the_parser() -> None:
    message = b""
    for _ in range(2_000):
        message = join(nested(6, nested(1, [message])))  # a list in a list
    message = join(nested(11, nested(1, nested(2, [message]))))
    check_lists(message, lists_of(text_generation_pb2.GenerateRequest.DESCRIPTOR), MOST)
    with pytest.raises(DecodeError):
        text_generation_pb2.GenerateRequest.FromString(message)


def test_messages_without_lists_and_packed_numbers_are_not_counted() -> None:
    score = translation_pb2.TranslationScore(token_log_probabilities=[0.5] * 1_000)
    check_lists(score.SerializeToString(), lists_of(score.DESCRIPTOR), MOST)
    assert lists_of(translation_pb2.TextSpan.DESCRIPTOR) == {}
    assert [field.name for field in lists_of(embedding_pb2.EmbedTextRequest.DESCRIPTOR).values()] == ["contents"]


@pytest.mark.parametrize("size", [0, 1, 300, CHUNK, CHUNK + 5])
def test_a_field_made_of_chunks_is_the_field(size: int) -> None:
    content = bytearray(range(256)) * (size // 256 + 1)
    parts = nested(oip.ModelInferResponse.RAW_OUTPUT_CONTENTS_FIELD_NUMBER, chunks(memoryview(content)[:size]))
    assert all(type(part) is bytes for part in parts), "to join other types keeps the GIL"
    expected = oip.ModelInferResponse(raw_output_contents=[bytes(content[:size])]).SerializeToString()
    assert join(parts) == expected
    assert not parts
