"""Between the client's dataclasses and the wire's messages."""

from dataclasses import fields
from typing import Any, Protocol, TypedDict

from triptych.v1 import common_pb2, model_pb2, translation_pb2
from triptych_client.errors import ServerError
from triptych_client.options import DecodingOptions, SplitSentences
from triptych_client.results import FinishReason, Hypothesis, Model, ModelState, Timing, Translation, TranslationScore

SPLIT_SENTENCES = {
    SplitSentences.AUTO: translation_pb2.SPLIT_SENTENCES_AUTO,
    SplitSentences.OFF: translation_pb2.SPLIT_SENTENCES_OFF,
}
FINISH_REASONS = {
    translation_pb2.FINISH_REASON_STOP: FinishReason.STOP,
    translation_pb2.FINISH_REASON_LENGTH: FinishReason.LENGTH,
}
MODEL_STATES = {
    model_pb2.MODEL_STATE_LOADING: ModelState.LOADING,
    model_pb2.MODEL_STATE_READY: ModelState.READY,
    model_pb2.MODEL_STATE_UNLOADING: ModelState.UNLOADING,
    model_pb2.MODEL_STATE_FAILED: ModelState.FAILED,
    model_pb2.MODEL_STATE_UNLOADED: ModelState.UNLOADED,
}


def options_message(options: DecodingOptions, part: slice) -> translation_pb2.DecodingOptions:
    """The options for the texts of `part`: prefixes are one for each text, all else is for all of them."""
    # protobuf takes None in a constructor for a field that is not set.
    values: dict[str, Any] = {field.name: getattr(options, field.name) for field in fields(options)}
    values["target_prefix"] = options.target_prefix[part]
    if options.split_sentences is not None:
        values["split_sentences"] = SPLIT_SENTENCES[SplitSentences(options.split_sentences)]
    return translation_pb2.DecodingOptions(**values)


def timing_from(message: common_pb2.Timing) -> Timing:
    return Timing(
        queue_seconds=message.queue_seconds,
        preprocess_seconds=message.preprocess_seconds,
        inference_seconds=message.inference_seconds,
        postprocess_seconds=message.postprocess_seconds,
        time_to_first_token_seconds=message.time_to_first_token_seconds,
    )


class ServedFields(TypedDict):
    """The members of triptych_client.results.Served."""

    model: str
    model_version: str
    timing: Timing
    request_id: str


class ServedMessage(Protocol):
    """A message that says what served a call."""

    model: str
    model_version: str

    @property
    def timing(self) -> common_pb2.Timing: ...


def served_from(message: ServedMessage, request_id: str) -> ServedFields:
    return ServedFields(
        model=message.model,
        model_version=message.model_version,
        timing=timing_from(message.timing),
        request_id=request_id,
    )


def hypothesis_from(message: translation_pb2.Hypothesis) -> Hypothesis:
    return Hypothesis(
        text=message.text,
        score=message.score if message.HasField("score") else None,
        finish_reason=FINISH_REASONS.get(message.finish_reason, FinishReason.UNKNOWN),
        token_count=message.token_count,
        alignment=tuple(tuple(token.source_weights) for token in message.alignment),
        spans=tuple((token.start, token.end) for token in message.tokens),
    )


def translation_from(message: translation_pb2.Translation, served: ServedFields) -> Translation:
    """One translation. Raises ServerError: it has no hypothesis."""
    if not message.hypotheses:
        problem = "the server sent a translation without hypotheses"
        raise ServerError(problem, code="INTERNAL", request_id=served["request_id"])
    return Translation(
        text=message.translated_text,
        hypotheses=tuple(hypothesis_from(hypothesis) for hypothesis in message.hypotheses),
        source_token_count=message.source_token_count,
        source_spans=tuple((token.start, token.end) for token in message.source_tokens),
        **served,
    )


def translation_score_from(message: translation_pb2.TranslationScore, served: ServedFields) -> TranslationScore:
    return TranslationScore(
        log_probability=message.log_probability,
        token_log_probabilities=tuple(message.token_log_probabilities),
        **served,
    )


def model_from(message: model_pb2.Model) -> Model:
    return Model(
        name=message.name,
        version=message.version,
        task=message.task,
        state=MODEL_STATES.get(message.state, ModelState.UNKNOWN),
        state_message=message.state_message,
        precision=message.precision,
        available_precisions=tuple(message.available_precisions),
        source_languages=tuple(message.source_language_codes),
        target_languages=tuple(message.target_language_codes),
        max_source_tokens=message.max_source_tokens,
        max_target_tokens=message.max_target_tokens,
        labels=tuple(message.labels),
        services=tuple(message.services),
        version_labels=tuple(message.version_labels),
        default_version=message.default_version,
        devices=tuple(message.devices),
    )
