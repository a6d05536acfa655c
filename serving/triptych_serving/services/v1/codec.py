"""Wire messages to plain values and back."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

from triptych.v1 import model_pb2, translation_pb2
from triptych_serving.bundle.manifest import TextManifest, TranslationManifest
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.translation.options import DecodingOptions, SplitSentences
from triptych_serving.models.translation.postprocess import Translation, TranslationHypothesis
from triptych_serving.models.translation.scoring import TranslationScore
from triptych_serving.repository.registry import ModelSelector, ModelVersion, State
from triptych_serving.rpc.descriptors import services_of
from triptych_serving.scheduling.request import Finish
from triptych_serving.text.spans import Span

TranslateRequest = translation_pb2.TranslateRequest | translation_pb2.TranslateStreamRequest


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


PLAIN_TEXT = "text/plain"
USUAL_BYTES = 128  # of options that are remembered: all numbers, and short texts
SPLIT = {
    translation_pb2.SPLIT_SENTENCES_UNSPECIFIED: None,
    translation_pb2.SPLIT_SENTENCES_AUTO: SplitSentences.AUTO,
    translation_pb2.SPLIT_SENTENCES_OFF: SplitSentences.OFF,
}
STATES = {
    State.LOADING: model_pb2.MODEL_STATE_LOADING,
    State.READY: model_pb2.MODEL_STATE_READY,
    State.UNLOADING: model_pb2.MODEL_STATE_UNLOADING,
    State.FAILED: model_pb2.MODEL_STATE_FAILED,
    State.UNLOADED: model_pb2.MODEL_STATE_UNLOADED,
}
FINISH = {Finish.STOP: translation_pb2.FINISH_REASON_STOP, Finish.LENGTH: translation_pb2.FINISH_REASON_LENGTH}


def wish_from(request: ModelRequest) -> ModelSelector:
    """Which model a request asks for."""
    return ModelSelector(request.model, request.model_version)


def translation_wish_from(request: TranslateRequest | translation_pb2.ScoreTranslationsRequest) -> ModelSelector:
    """The same, with its languages."""
    return ModelSelector(request.model, request.model_version, request.source_language_code, request.target_language_code)


def contents_from(request: TextRequest) -> Sequence[str]:
    """The texts.

    Raises:
        InvalidInputError: there are none, or they are not plain text.
    """
    if request.mime_type not in ("", PLAIN_TEXT):
        raise InvalidInputError("mime_type", f"{request.mime_type!r} is not supported, send {PLAIN_TEXT!r}")
    if not request.contents:
        raise InvalidInputError("contents", "there are no texts")
    return list(request.contents)


def pairs_from(request: translation_pb2.ScoreTranslationsRequest) -> list[tuple[str, str]]:
    """Sources and their translations.

    Raises:
        InvalidInputError: there are none.
    """
    if not request.pairs:
        raise InvalidInputError("pairs", "there are no pairs")
    return [(pair.source, pair.target) for pair in request.pairs]


def options_from(message: translation_pb2.DecodingOptions) -> DecodingOptions:
    """Options, None where the caller left them to the model.

    Raises:
        InvalidInputError: `split_sentences` has a value that this release does not know.
    """
    packed = message.SerializeToString(deterministic=True)
    return _usual_options(packed) if len(packed) <= USUAL_BYTES else _options(message)


@lru_cache(maxsize=256)
def _usual_options(packed: bytes) -> DecodingOptions:
    """Most callers always ask for the same."""
    return _options(translation_pb2.DecodingOptions.FromString(packed))


def _options(message: translation_pb2.DecodingOptions) -> DecodingOptions:
    if message.split_sentences not in SPLIT:
        raise InvalidInputError("options.split_sentences", f"{message.split_sentences} is unknown")
    values: dict[str, Any] = {field.name: tuple(value) if field.is_repeated else value for field, value in message.ListFields()}
    values["split_sentences"] = SPLIT[message.split_sentences]
    return DecodingOptions(**values)


def translation_to(output: Translation) -> translation_pb2.Translation:
    """One text's result."""
    return translation_pb2.Translation(
        translated_text=output.text,
        hypotheses=[_hypothesis_to(hypothesis) for hypothesis in output.hypotheses],
        source_token_count=output.source_token_count,
        source_tokens=map(_span_to, output.source_spans),
    )


def _hypothesis_to(hypothesis: TranslationHypothesis) -> translation_pb2.Hypothesis:
    weights = [] if hypothesis.alignment is None else hypothesis.alignment.tolist()
    return translation_pb2.Hypothesis(
        text=hypothesis.text,
        score=hypothesis.score,
        finish_reason=FINISH[hypothesis.finish],
        token_count=hypothesis.token_count,
        alignment=[translation_pb2.TokenAlignment(source_weights=token) for token in weights],
        tokens=map(_span_to, hypothesis.spans),
    )


def _span_to(span: Span) -> translation_pb2.TextSpan:
    return translation_pb2.TextSpan(start=span[0], end=span[1])


def score_to(score: TranslationScore) -> translation_pb2.TranslationScore:
    """One pair's result."""
    return translation_pb2.TranslationScore(
        log_probability=score.log_probability, token_log_probabilities=score.token_log_probabilities.tolist()
    )


def model_to(loaded: ModelVersion) -> model_pb2.Model:
    """One version of a model of the repository."""
    message = model_pb2.Model(name=loaded.name, version=loaded.version, state=STATES[loaded.state])
    message.state_message = loaded.fault
    message.version_labels.extend(loaded.labels)
    model = loaded.model
    if model is None:
        return message
    manifest = model.manifest
    message.task = manifest.task
    message.precision = model.precision
    message.available_precisions.extend(manifest.precisions)
    message.devices.extend(map(str, model.devices))
    message.labels.extend(model.labels)
    message.services.extend(services_of(model.capabilities))
    if isinstance(manifest, TranslationManifest):
        message.source_language_codes.extend(manifest.source_languages)
        message.target_language_codes.extend(manifest.target_languages)
        message.max_source_tokens = manifest.limits.max_source_tokens
        message.max_target_tokens = manifest.limits.max_target_tokens
    if isinstance(manifest, TextManifest):
        message.max_source_tokens = manifest.limits.max_tokens
    return message
