"""What the user asked one of the BERT family's services."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, TypeVar

from triptych.v1 import (
    embedding_pb2,
    fill_mask_pb2,
    question_answering_pb2,
    text_classification_pb2,
    token_classification_pb2,
)
from triptych_client.chunks import text_bytes
from triptych_client.codec import ServedFields
from triptych_client.encoder_codec import (
    AGGREGATIONS,
    POOLINGS,
    answered_question_from,
    classified_text_from,
    embedding_from,
    filled_text_from,
    labelled_text_from,
)
from triptych_client.job import Job, check_counts, check_sequence
from triptych_client.options import Aggregation, Pooling
from triptych_client.text_results import AnsweredQuestion, ClassifiedText, Embedding, FilledText, LabelledText

TextOrPair: TypeAlias = str | tuple[str, str]
"""A text, or the two texts of a pair."""


@dataclass(frozen=True, kw_only=True)
class FillMaskJob(Job[fill_mask_pb2.FillMaskRequest, fill_mask_pb2.FillMaskResponse, FilledText]):
    """What one call of `fill_mask` or `fill_mask_many` asks for."""

    texts: Sequence[str]
    top_k: int | None = None
    targets: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_sequence(self.texts, "fill_mask", "text")
        check_counts(top_k=self.top_k)
        if isinstance(self.targets, str):
            raise TypeError("targets takes a sequence of words, not one word")

    def sizes(self) -> list[int]:
        # The answer repeats the text for each candidate.
        return [text_bytes(text) * max(1, self.top_k or 1) for text in self.texts]

    def request(self, part: slice) -> fill_mask_pb2.FillMaskRequest:
        return fill_mask_pb2.FillMaskRequest(
            contents=self.texts[part],
            model=self.model or "",
            model_version=self.model_version or "",
            top_k=self.top_k,
            targets=self.targets,
        )

    def read(self, response: fill_mask_pb2.FillMaskResponse, served: ServedFields) -> list[FilledText]:
        return [filled_text_from(result, served) for result in response.results]


@dataclass(frozen=True, kw_only=True)
class EmbedJob(Job[embedding_pb2.EmbedTextRequest, embedding_pb2.EmbedTextResponse, Embedding]):
    """What one call of `embed` or `embed_many` asks for."""

    texts: Sequence[str]
    pooling: str | None = None
    normalize: bool | None = None

    def __post_init__(self) -> None:
        check_sequence(self.texts, "embed", "text")
        if self.pooling is not None:
            choose(Pooling, "pooling", self.pooling)

    def sizes(self) -> list[int]:
        return [text_bytes(text) for text in self.texts]

    def request(self, part: slice) -> embedding_pb2.EmbedTextRequest:
        return embedding_pb2.EmbedTextRequest(
            contents=self.texts[part],
            model=self.model or "",
            model_version=self.model_version or "",
            pooling=embedding_pb2.POOLING_UNSPECIFIED if self.pooling is None else POOLINGS[Pooling(self.pooling)],
            normalize=self.normalize,
        )

    def read(self, response: embedding_pb2.EmbedTextResponse, served: ServedFields) -> list[Embedding]:
        return [embedding_from(embedding, served) for embedding in response.embeddings]


@dataclass(frozen=True, kw_only=True)
class ClassifyTextJob(
    Job[text_classification_pb2.ClassifyTextRequest, text_classification_pb2.ClassifyTextResponse, ClassifiedText]
):
    """What one call of `classify_text` or `classify_text_many` asks for."""

    inputs: Sequence[TextOrPair]
    top_k: int | None = None

    def __post_init__(self) -> None:
        check_sequence(self.inputs, "classify_text", "text")
        check_counts(top_k=self.top_k)

    def sizes(self) -> list[int]:
        return [sum(map(text_bytes, as_pair(each))) for each in self.inputs]

    def request(self, part: slice) -> text_classification_pb2.ClassifyTextRequest:
        pairs = [as_pair(each) for each in self.inputs[part]]
        return text_classification_pb2.ClassifyTextRequest(
            inputs=[text_classification_pb2.TextInput(text=text, text_pair=text_pair) for text, text_pair in pairs],
            model=self.model or "",
            model_version=self.model_version or "",
            top_k=self.top_k,
        )

    def read(self, response: text_classification_pb2.ClassifyTextResponse, served: ServedFields) -> list[ClassifiedText]:
        return [classified_text_from(result, served) for result in response.results]


@dataclass(frozen=True, kw_only=True)
class ClassifyTokensJob(
    Job[token_classification_pb2.ClassifyTokensRequest, token_classification_pb2.ClassifyTokensResponse, LabelledText]
):
    """What one call of `classify_tokens` or `classify_tokens_many` asks for."""

    texts: Sequence[str]
    aggregation: str = Aggregation.SIMPLE

    def __post_init__(self) -> None:
        check_sequence(self.texts, "classify_tokens", "text")
        choose(Aggregation, "aggregation", self.aggregation)

    def sizes(self) -> list[int]:
        return [text_bytes(text) for text in self.texts]

    def request(self, part: slice) -> token_classification_pb2.ClassifyTokensRequest:
        return token_classification_pb2.ClassifyTokensRequest(
            contents=self.texts[part],
            model=self.model or "",
            model_version=self.model_version or "",
            aggregation=AGGREGATIONS[Aggregation(self.aggregation)],
        )

    def read(self, response: token_classification_pb2.ClassifyTokensResponse, served: ServedFields) -> list[LabelledText]:
        return [labelled_text_from(result, served) for result in response.results]


@dataclass(frozen=True, kw_only=True)
class AnswerJob(
    Job[question_answering_pb2.AnswerQuestionRequest, question_answering_pb2.AnswerQuestionResponse, AnsweredQuestion]
):
    """What one call of `answer` or `answer_many` asks for."""

    pairs: Sequence[tuple[str, str]]
    top_k: int | None = None
    max_answer_length: int | None = None

    def __post_init__(self) -> None:
        if any(isinstance(pair, str) for pair in self.pairs):
            raise TypeError("answer_many takes a sequence of (question, context) pairs; answer takes one question and context")
        check_counts(top_k=self.top_k, max_answer_length=self.max_answer_length)

    def sizes(self) -> list[int]:
        return [text_bytes(question) + text_bytes(context) for question, context in self.pairs]

    def request(self, part: slice) -> question_answering_pb2.AnswerQuestionRequest:
        return question_answering_pb2.AnswerQuestionRequest(
            inputs=[
                question_answering_pb2.QuestionInput(question=question, context=context)
                for question, context in self.pairs[part]
            ],
            model=self.model or "",
            model_version=self.model_version or "",
            top_k=self.top_k,
            max_answer_length=self.max_answer_length,
        )

    def read(self, response: question_answering_pb2.AnswerQuestionResponse, served: ServedFields) -> list[AnsweredQuestion]:
        return [answered_question_from(result, served) for result in response.results]


def as_pair(each: TextOrPair) -> tuple[str, str]:
    """Text and second text, which is empty where there is none."""
    return (each, "") if isinstance(each, str) else each


Choice = TypeVar("Choice", bound=StrEnum)


def choose(kind: type[Choice], name: str, value: str) -> Choice:
    """Return the member that `value` names. Raises ValueError if there is none."""
    if value not in list(kind):
        raise ValueError(f"{name} is {value!r}, must be one of: {', '.join(kind)}")
    return kind(value)
