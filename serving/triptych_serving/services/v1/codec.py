"""Conversion of the messages of `triptych.v1`: what several services share, and translations."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import numpy as np
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from numpy.typing import NDArray

from triptych.decoding import DecodingOptions, SplitSentences
from triptych.v1 import common_pb2, embedding_pb2, translation_pb2
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.text.embedding import TextEmbedding
from triptych_serving.models.translation.postprocess import Translation, TranslationHypothesis
from triptych_serving.models.translation.scoring import TranslationScore
from triptych_serving.repository.registry import ModelSelector
from triptych_serving.rpc.call_context import ModelUse
from triptych_serving.rpc.wire import Parts, nested
from triptych_serving.scheduling.request import Finish
from triptych_serving.text.spans import Span

Choice = TypeVar("Choice")
TranslateRequest = (
    translation_pb2.TranslateRequest | translation_pb2.TranslateStreamRequest | translation_pb2.ScoreTranslationsRequest
)

PLAIN_TEXT = "text/plain"
CACHED_BYTES = 128  # of cached options, which are numbers
SPLIT = {
    translation_pb2.SPLIT_SENTENCES_UNSPECIFIED: None,
    translation_pb2.SPLIT_SENTENCES_AUTO: SplitSentences.AUTO,
    translation_pb2.SPLIT_SENTENCES_OFF: SplitSentences.OFF,
}
# Fields for stages of a ModelUse; all others are inference.
TIMING = {stage: f"{stage}_seconds" for stage in ("queue", "preprocess", "postprocess")}
FINISH = {Finish.STOP: translation_pb2.FINISH_REASON_STOP, Finish.LENGTH: translation_pb2.FINISH_REASON_LENGTH}


class ModelRequest(Protocol):
    """Any request that may name a model."""

    @property
    def model(self) -> str: ...

    @property
    def model_version(self) -> str: ...


class TextRequest(Protocol):
    """Any request with texts."""

    @property
    def contents(self) -> Sequence[str]: ...

    @property
    def mime_type(self) -> str: ...


def selector_from(request: ModelRequest) -> ModelSelector:
    """Convert the model of a request."""
    return ModelSelector(request.model, request.model_version)


def translation_selector_from(request: TranslateRequest) -> ModelSelector:
    """Convert the model and languages of a request."""
    return ModelSelector(request.model, request.model_version, request.source_language_code, request.target_language_code)


def contents_from(request: TextRequest) -> list[str]:
    """Convert the texts of a request. Raises InvalidInputError: there are none, or they are not plain text."""
    if request.mime_type not in ("", PLAIN_TEXT):
        raise InvalidInputError("mime_type", f"{request.mime_type!r} is not supported, send {PLAIN_TEXT!r}")
    if not request.contents:
        raise InvalidInputError("contents", "there are no texts")
    return list(request.contents)


def optional_from(request: Any, name: str) -> Any:
    """Return an optional field; None if it is not set."""
    return getattr(request, name) if request.HasField(name) else None


def choice_from(request: Any, name: str, choices: Mapping[Any, Choice]) -> Choice:
    """Convert an enumeration. Raises InvalidInputError: the value is unknown to this release."""
    value = getattr(request, name)
    if value not in choices:
        raise InvalidInputError(name, f"{value} is unknown")
    return choices[value]


def options_from(message: translation_pb2.DecodingOptions) -> DecodingOptions:
    """Convert decoding options; None where the caller left the default to the model.

    Raises:
        InvalidInputError: the value of `split_sentences` is unknown to this release.
    """
    if message.suppress_sequences or message.target_prefix:  # a cache keeps no text of a caller
        return _options(message)
    packed = message.SerializeToString(deterministic=True)
    return _cached_options(packed) if len(packed) <= CACHED_BYTES else _options(message)


@lru_cache(maxsize=256)
def _cached_options(packed: bytes) -> DecodingOptions:
    """Convert packed options. Most callers send the same options with every request."""
    return _options(translation_pb2.DecodingOptions.FromString(packed))


def _options(message: translation_pb2.DecodingOptions) -> DecodingOptions:
    if message.split_sentences not in SPLIT:
        raise InvalidInputError("options.split_sentences", f"{message.split_sentences} is unknown")
    values: dict[str, Any] = {field.name: tuple(value) if field.is_repeated else value for field, value in message.ListFields()}
    values["split_sentences"] = SPLIT[message.split_sentences]
    return DecodingOptions(**values)


def converter(message: Any) -> Callable[[Any], Any]:
    """Return a function that converts a result to a message of this descriptor, whose fields are named as its attributes."""
    make, read = GetMessageClass(message), _field_reader(message)
    return lambda result: make(**read(result))


def _field_reader(message: Any) -> Callable[[Any], dict[str, Any]]:
    """Return a function that reads the fields from attributes. Nested messages are mappings: messages would be copied."""
    fields = message.fields
    plain = [field.name for field in fields if field.message_type is None]
    nested_lists = [(field.name, _field_reader(field.message_type)) for field in fields if field.message_type is not None]

    def read(result: Any) -> dict[str, Any]:
        values = {name: getattr(result, name) for name in plain}
        for name, read_one in nested_lists:
            values[name] = map(read_one, getattr(result, name))
        return values

    return read


def packer(response: type[Message]) -> Callable[[Any], bytes]:
    """Return a function that converts a result to a serialized response whose first field, a list, has only this result.

    Serialized messages, joined, are one message with all their elements. So a large response is made bit by bit, off the event
    loop, and never exists as a message, which takes several times its memory.
    """
    field = response.DESCRIPTOR.fields_by_number[1]
    convert = converter(field.message_type)
    return lambda result: b"".join(nested(field.number, [convert(result).SerializeToString()]))


def packed_embedding(embedding: TextEmbedding) -> bytes:
    """Convert an embedding like a function of `packer`, in a quarter of the time: numbers are copied, not converted."""
    rest = embedding_pb2.Embedding(
        token_count=embedding.token_count,
        truncated=embedding.truncated,
        token_starts=embedding.token_starts,
        token_ends=embedding.token_ends,
    )
    parts = [rest.SerializeToString()]
    for number, values in (
        (embedding_pb2.Embedding.VALUES_FIELD_NUMBER, embedding.values),
        (embedding_pb2.Embedding.TOKEN_VALUES_FIELD_NUMBER, embedding.token_values),
    ):
        if values:
            parts += nested(number, [np.asarray(values, "<f4").tobytes()])
    return b"".join(nested(embedding_pb2.EmbedTextResponse.EMBEDDINGS_FIELD_NUMBER, parts))


def joined(elements: Iterable[bytes], rest: Message) -> Parts:
    """Return the parts of a response: its packed elements and the other fields."""
    return [*elements, rest.SerializeToString()]


def served_by(use: ModelUse) -> dict[str, Any]:
    """Return the fields that all responses have: `model`, `model_version` and `timing`."""
    seconds: dict[str, float] = {}
    for stage, (start, end) in use.stages.items():
        if end > start:
            name = TIMING.get(stage, "inference_seconds")
            seconds[name] = seconds.get(name, 0.0) + end - start
    if use.first_token:
        seconds["time_to_first_token_seconds"] = max(0.0, use.first_token - min(use.stages.values())[0])
    return {"model": use.model, "model_version": use.version, "timing": common_pb2.Timing(**seconds)}


def packed_translation(translation: Translation) -> Parts:
    """Convert the translation of one text to a message in parts."""
    message = translation_pb2.Translation(
        translated_text=translation.text,
        source_token_count=translation.source_token_count,
        source_tokens=map(_span_to, translation.source_spans),
    )
    parts = [message.SerializeToString()]
    for hypothesis in translation.hypotheses:
        parts += nested(translation_pb2.Translation.HYPOTHESES_FIELD_NUMBER, _packed_hypothesis(hypothesis))
    return parts


def packed_score(score: TranslationScore) -> bytes:
    """Convert the score of one pair to a serialized response that has only this score."""
    numbers = score.token_log_probabilities.tolist()
    message = translation_pb2.TranslationScore(log_probability=score.log_probability, token_log_probabilities=numbers)
    return translation_pb2.ScoreTranslationsResponse(scores=[message]).SerializeToString()


def _packed_hypothesis(hypothesis: TranslationHypothesis) -> Parts:
    message = translation_pb2.Hypothesis(
        text=hypothesis.text,
        score=hypothesis.score,
        finish_reason=FINISH[hypothesis.finish],
        token_count=hypothesis.token_count,
        tokens=map(_span_to, hypothesis.spans),
    )
    parts = [message.SerializeToString()]
    if hypothesis.alignment is not None and hypothesis.alignment.size:
        parts.append(_packed_alignment(hypothesis.alignment))
    return parts


def _packed_alignment(weights: NDArray[np.float32]) -> bytes:
    """Return a packed hypothesis with an alignment alone: as numbers of Python, weights take 300 times as long."""
    tokens, sources = weights.shape
    empty = translation_pb2.TokenAlignment(source_weights=[0.0] * sources)
    header = np.frombuffer(translation_pb2.Hypothesis(alignment=[empty]).SerializeToString()[: -4 * sources], np.uint8)
    rows = np.empty((tokens, len(header) + 4 * sources), np.uint8)
    rows[:, : len(header)] = header
    rows[:, len(header) :] = np.ascontiguousarray(weights, "<f4").view(np.uint8)
    return rows.tobytes()


def _span_to(span: Span) -> translation_pb2.TextSpan:
    return translation_pb2.TextSpan(start=span[0], end=span[1])
