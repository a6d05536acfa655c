"""Triptych's calls: how requests are made, and what of the answers is read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triptych.v1 import (
    embedding_pb2,
    fill_mask_pb2,
    image_classification_pb2,
    question_answering_pb2,
    text_classification_pb2,
    token_classification_pb2,
    translation_pb2,
)
from triptych_bench.target import Sample, Wanted
from triptych_client.call import Call
from triptych_client.image_job import ClassifyImageJob
from triptych_client.options import DecodingOptions
from triptych_client.score_job import ScoreJob
from triptych_client.text_jobs import AnswerJob, ClassifyTextJob, ClassifyTokensJob, EmbedJob, FillMaskJob
from triptych_client.translate_job import TranslateJob

ALL = slice(None)
LANGUAGES = ("source_language", "target_language")


@dataclass(frozen=True)
class Method:
    """One call of one service."""

    path: str
    request: Callable[[Sequence[Sample], Wanted], bytes]  # serialized
    parse: Callable[[bytes], Any]  # an answer's message
    tokens: Callable[[Any], int]  # that the message's texts have
    read: Callable[[Any], list[str]]  # what came back for each input


def _job(wanted: Wanted) -> dict[str, Any]:
    """The members of every job of the client."""
    return {"call": Call("", 0.0, 0), "model": wanted.model or None, "model_version": wanted.version or None}


def _options(wanted: Wanted, *left_out: str) -> dict[str, Any]:
    return {name: value for name, value in wanted.options.items() if name not in left_out}


def _languages(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: options.get(name) or None for name in LANGUAGES}


def _translation(samples: Sequence[Sample], wanted: Wanted) -> TranslateJob:
    prefix = wanted.options.get("target_prefix") or ""
    options = _options(wanted, *LANGUAGES, "target_prefix")
    if prefix:
        options["target_prefix"] = (prefix,) * len(samples)
    texts = [sample.data for sample in samples]
    return TranslateJob(texts=texts, options=DecodingOptions(**options), **_languages(wanted.options), **_job(wanted))


def _translate(samples: Sequence[Sample], wanted: Wanted) -> bytes:
    return _translation(samples, wanted).request(ALL).SerializeToString()


def _translate_stream(samples: Sequence[Sample], wanted: Wanted) -> bytes:
    return _translation(samples, wanted).stream_request().SerializeToString()


def _score(samples: Sequence[Sample], wanted: Wanted) -> bytes:
    job = ScoreJob(pairs=[sample.data for sample in samples], **_languages(wanted.options), **_job(wanted))
    return job.request(ALL).SerializeToString()


def _of(job: Callable[..., Any], inputs: str) -> Callable[[Sequence[Sample], Wanted], bytes]:
    """For jobs whose options are all of the task's."""

    def request(samples: Sequence[Sample], wanted: Wanted) -> bytes:
        values = {inputs: [sample.data for sample in samples], **wanted.options, **_job(wanted)}
        serialized: bytes = job(**values).request(ALL).SerializeToString()
        return serialized

    return request


def _translation_tokens(message: Any) -> int:
    return sum(map(best_tokens, message.translations))


def best_tokens(translation: Any) -> int:
    """Of the first hypothesis: it is the one that is streamed."""
    return sum(each.token_count for each in translation.hypotheses[:1])


def _no_tokens(_: Any) -> int:
    return 0


def _translations(message: Any) -> list[str]:
    return [translation.translated_text for translation in message.translations]


def _scores(message: Any) -> list[str]:
    return [f"{score.log_probability:.4f}" for score in message.scores]


def _first_fills(message: Any) -> list[str]:
    """The best token of the first mask."""
    return [result.masks[0].candidates[0].token_str if result.masks else "" for result in message.results]


def _first_labels(message: Any) -> list[str]:
    return [result.labels[0].label if result.labels else "" for result in message.results]


def _entities(message: Any) -> list[str]:
    return [" ".join(f"{entity.label}:{entity.text}" for entity in result.entities) for result in message.results]


def _answers(message: Any) -> list[str]:
    return [result.answers[0].text if result.answers else "" for result in message.results]


def _sizes(message: Any) -> list[str]:
    return [str(len(embedding.values)) for embedding in message.embeddings]


METHODS: Mapping[str, Method] = {
    "translate": Method(
        "TranslationService/Translate",
        _translate,
        translation_pb2.TranslateResponse.FromString,
        _translation_tokens,
        _translations,
    ),
    "score": Method(
        "TranslationService/ScoreTranslations",
        _score,
        translation_pb2.ScoreTranslationsResponse.FromString,
        _no_tokens,
        _scores,
    ),
    "fill": Method(
        "FillMaskService/FillMask",
        _of(FillMaskJob, "texts"),
        fill_mask_pb2.FillMaskResponse.FromString,
        _no_tokens,
        _first_fills,
    ),
    "embed": Method(
        "EmbeddingService/EmbedText",
        _of(EmbedJob, "texts"),
        embedding_pb2.EmbedTextResponse.FromString,
        _no_tokens,
        _sizes,
    ),
    "classify-text": Method(
        "TextClassificationService/ClassifyText",
        _of(ClassifyTextJob, "inputs"),
        text_classification_pb2.ClassifyTextResponse.FromString,
        _no_tokens,
        _first_labels,
    ),
    "classify-tokens": Method(
        "TokenClassificationService/ClassifyTokens",
        _of(ClassifyTokensJob, "texts"),
        token_classification_pb2.ClassifyTokensResponse.FromString,
        _no_tokens,
        _entities,
    ),
    "answer": Method(
        "QuestionAnsweringService/AnswerQuestion",
        _of(AnswerJob, "pairs"),
        question_answering_pb2.AnswerQuestionResponse.FromString,
        _no_tokens,
        _answers,
    ),
    "classify": Method(
        "ImageClassificationService/ClassifyImage",
        _of(ClassifyImageJob, "images"),
        image_classification_pb2.ClassifyImageResponse.FromString,
        _no_tokens,
        _first_labels,
    ),
}
STREAM_PATH = "TranslationService/TranslateStream"
stream_request = _translate_stream
stream_event = translation_pb2.TranslateStreamResponse.FromString
