"""Strategies for the messages of a contract, made from its descriptors."""

import io
import math
from collections.abc import Callable
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st
from PIL import Image

from ..fixtures.toy import SOURCE, SOURCES, TARGET

Values = dict[str, Any]
Field = FieldDescriptor

WORDS = [
    *(*SOURCES[:3], TARGET, "one two [MASK]", "[MASK]", "[MASK] [MASK] zero", "[CLS] [SEP] [PAD] [UNK]"),
    *("where does anna live?", "anna smith lives in paris.", "a" * 3_000, "one " * 400, "Das ist gut. " * 60),
    *("", " ", "\n\t\r\u2028", "\0", "\U0001f600\u200d\U0001f469", "e\u0301\u0327", "\u202eabc\u202c", "\ufeff", "\ufffd"),
    *("<0x41><unk></s><pad>\u2581", "text/plain", "text/html", "en", "de", "de-DE", "deu_Latn", "und"),
    *("toy", "fill-mask", "1", "-1", "stable", "../..", "%s{}'\";--"),
]
NAMES = {
    "model": st.sampled_from(
        ["", "toy", "fill-mask", "image-classification", "question-answering", "nobody", "a\nb", "x" * 500]
    ),
    "model_version": st.sampled_from(["", "1", "2", "01", "stable", "-1", "v1"]),
    "model_name": st.sampled_from(["toy", "fill-mask", "image-classification", "nobody", ""]),
    "name": st.sampled_from(["", "toy", "fill-mask", "nobody", "../toy", "text", "image", "score"]),
    "datatype": st.sampled_from(["BYTES", "FP32", "bytes", ""]),
    "key": st.sampled_from(["task", "top_k", "beam_size", "num_hypotheses", "return_scores", "seed", "normalize", "nonsense"]),
    "version": st.sampled_from(["", "1", "2", "stable", "9" * 30]),
    "format": st.sampled_from(["", "text", "json", "docx", "nonsense"]),
    "file_name": st.sampled_from(["", "a.txt", "a.html", "a.exe", "../../a.md", "a\nb"]),
    "encoding": st.sampled_from(["", "utf-8", "latin-1", "utf-16", "rot13", "nonsense"]),
    "mime_type": st.sampled_from(["", "text/plain", "text/html"]),
    "source_language_code": st.sampled_from(["", "en", "en-US", "eng_Latn", "de", "fr", "e", "\0"]),
    "target_language_code": st.sampled_from(["", "de", "de-DE", "deu_Latn", "en", "xx", "-"]),
}
SMALL = [0, 1, 2, 3, 4, 5, 8, 31, 32, 33, 100, 101]
FLOATS = [0.0, -0.0, 0.5, 1.0, 1.5, 2.0, -1.0, 0.001, 1e-45, 1e30, -1e30, 100.0, 101.0, math.nan, math.inf, -math.inf]
WIDE = {
    **dict.fromkeys((Field.TYPE_INT32, Field.TYPE_SINT32, Field.TYPE_SFIXED32, Field.TYPE_ENUM), (-(2**31), 2**31 - 1)),
    **dict.fromkeys((Field.TYPE_INT64, Field.TYPE_SINT64, Field.TYPE_SFIXED64), (-(2**63), 2**63 - 1)),
    **dict.fromkeys((Field.TYPE_UINT32, Field.TYPE_FIXED32), (0, 2**32 - 1)),
    **dict.fromkeys((Field.TYPE_UINT64, Field.TYPE_FIXED64), (0, 2**64 - 1)),
}


def images() -> list[bytes]:
    """Small files of every kind that is accepted."""
    files = []
    for kind in ("PNG", "JPEG", "WEBP", "GIF"):
        for mode, size in (("RGB", (9, 6)), ("L", (1, 1)), ("P", (3, 40))):
            file = io.BytesIO()
            Image.new(mode, size, 100).convert("RGB" if kind in ("JPEG", "WEBP") else mode).save(file, kind)
            files.append(file.getvalue())
    return files


IMAGES = images()


@st.composite
def damaged(draw: st.DrawFn, files: list[bytes]) -> bytes:
    """A file with a piece of it replaced, cut off or doubled."""
    data = draw(st.sampled_from(files))
    start, end = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
    piece = draw(st.one_of(st.just(b""), st.binary(max_size=8), st.just(data[start:end] * 2)))
    return data[:start] + piece + data[end:] if draw(st.booleans()) else data[:start]


TEXTS = st.one_of(st.sampled_from(WORDS), st.text(max_size=40))
BYTES = st.one_of(st.sampled_from(IMAGES), damaged(IMAGES), st.binary(max_size=64))


def scalar(field: Field) -> st.SearchStrategy[Any]:
    """Any value of a field's type, likely ones the more often."""
    if field.type == Field.TYPE_STRING:
        return st.one_of(NAMES[field.name], TEXTS) if field.name in NAMES else TEXTS
    if field.type == Field.TYPE_BYTES:
        return BYTES
    if field.type == Field.TYPE_BOOL:
        return st.booleans()
    if field.type in (Field.TYPE_FLOAT, Field.TYPE_DOUBLE):
        width = 32 if field.type == Field.TYPE_FLOAT else 64
        return st.one_of(st.sampled_from(FLOATS), st.floats(width=width, allow_subnormal=False))
    low, high = WIDE[field.type]
    return st.one_of(st.sampled_from(SMALL), st.sampled_from([low, high]), st.integers(low, high))


def value(field: Field, depth: int) -> st.SearchStrategy[Any]:
    """One value of a field, as the keyword of a message's constructor takes it."""
    one = values(field.message_type, depth) if field.type == Field.TYPE_MESSAGE else scalar(field)
    return st.lists(one, max_size=4) if field.is_repeated else one


def is_map(field: Field) -> bool:
    return field.type == Field.TYPE_MESSAGE and field.message_type.GetOptions().map_entry


def map_value(field: Field, depth: int) -> st.SearchStrategy[Values]:
    parts = field.message_type.fields_by_name
    return st.dictionaries(scalar(parts["key"]), value(parts["value"], depth), max_size=3)


@cache
def values(descriptor: Descriptor, depth: int = 4) -> st.SearchStrategy[Values]:
    """Keywords of a message's constructor; of a oneof at most one member."""
    if not depth:
        return st.just({})
    strategies = {
        field.name: map_value(field, depth - 1) if is_map(field) else value(field, depth - 1) for field in descriptor.fields
    }
    groups = [[field.name for field in oneof.fields] for oneof in descriptor.oneofs]
    return st.fixed_dictionaries({}, optional=strategies).map(lambda found: _only_one(found, groups))


def _only_one(found: Values, groups: list[list[str]]) -> Values:
    for group in groups:
        for name in [name for name in group if name in found][1:]:
            del found[name]
    return found


def tensor(name: str, *elements: bytes) -> Values:
    return {"name": name, "datatype": "BYTES", "shape": [len(elements)], "contents": {"bytes_contents": elements}}


# Requests that can be answered, by the names of their messages.
GOOD: dict[str, list[Values]] = {
    "TranslateRequest": [{"contents": [SOURCE]}],
    "TranslateStreamRequest": [{"contents": [SOURCE]}],
    "TranslateDocumentRequest": [{"config": {"format": "text", "model": "toy"}}],
    "ScoreTranslationsRequest": [{"pairs": [{"source": SOURCE, "target": TARGET}]}],
    "FillMaskRequest": [{"contents": ["one two [MASK]"]}],
    "EmbedTextRequest": [{"contents": ["one two"], "model": "fill-mask"}],
    "ClassifyTextRequest": [{"inputs": [{"text": "one two"}], "model": "text-classification"}],
    "ClassifyTokensRequest": [{"contents": ["anna lives in paris"]}],
    "AnswerQuestionRequest": [{"inputs": [{"question": "where does anna live?", "context": "anna lives in paris"}]}],
    "RerankRequest": [{"query": "one", "documents": ["one two", "two"], "top_k": 1}],
    "FindNeighborsRequest": [{"contents": ["three -one"]}],
    "ClassifyImageRequest": [{"images": [IMAGES[0]]}],
    "ClassifyImageStreamRequest": [{"image": IMAGES[0]}],
    "GetModelRequest": [{"name": "toy"}],
    "ListModelsRequest": [{}],
    "ModelInferRequest": [
        {"model_name": "toy", "inputs": [tensor("text", SOURCE.encode())]},
        {"model_name": "fill-mask", "inputs": [tensor("text", b"one [MASK]", b"[MASK] two")]},
        {"model_name": "fill-mask", "inputs": [tensor("text", b"one")], "parameters": {"task": {"string_param": "embedding"}}},
        {"model_name": "image-classification", "inputs": [tensor("image", IMAGES[0])]},
    ],
    "ModelMetadataRequest": [{"name": "toy"}],
    "ModelConfigRequest": [{"name": "fill-mask"}],
    "RepositoryIndexRequest": [{}],
}


@st.composite
def near_valid(draw: st.DrawFn, descriptor: Descriptor) -> Values:
    """A good request with some of its fields replaced, and others set."""
    good, found = draw(st.sampled_from(GOOD.get(descriptor.name, [{}]))), draw(values(descriptor))
    changed = draw(st.sets(st.sampled_from(sorted(found)), max_size=2)) if found else ()
    return {**good, **{name: found[name] for name in sorted(changed)}}


def messages(descriptor: Descriptor) -> st.SearchStrategy[Message]:
    """Arbitrary ones and nearly valid ones."""
    make: Callable[..., Message] = GetMessageClass(descriptor)
    return st.one_of(near_valid(descriptor), values(descriptor)).map(lambda found: make(**found))


def wire(descriptor: Descriptor) -> st.SearchStrategy[bytes]:
    """Bytes of a request: usually a whole message, else a damaged one or arbitrary bytes."""
    whole = messages(descriptor).map(lambda message: message.SerializeToString())
    return st.one_of(whole, whole, whole, whole.flatmap(lambda data: damaged([data])), st.binary(max_size=40))
