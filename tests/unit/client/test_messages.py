"""Conversion between the client's values and the wire's messages."""

from dataclasses import fields
from enum import StrEnum
from typing import Any

import pytest

from triptych.v1 import (
    common_pb2,
    embedding_pb2,
    fill_mask_pb2,
    image_classification_pb2,
    model_pb2,
    question_answering_pb2,
    text_classification_pb2,
    token_classification_pb2,
    translation_pb2,
)
from triptych_client import (
    Aggregation,
    Answer,
    AnsweredQuestion,
    ClassifiedImage,
    ClassifiedText,
    DecodingOptions,
    DocumentFinding,
    DocumentProgress,
    Embedding,
    Entity,
    FilledMask,
    FilledText,
    FindingKind,
    FinishReason,
    LabelledText,
    MaskCandidate,
    ModelState,
    Pooling,
    ScoredLabel,
    Severity,
    SplitSentences,
    Timing,
    TranslationScore,
)
from triptych_client.messages import enum_names, hypothesis_from, model_from, options_message
from triptych_client.results import Served

INTEGERS = [field.name for field in fields(DecodingOptions) if field.metadata["kind"] is int]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (DecodingOptions, translation_pb2.DecodingOptions),
        (Timing, common_pb2.Timing),
        (TranslationScore, translation_pb2.TranslationScore),
        (DocumentFinding, translation_pb2.DocumentFinding),
        (DocumentProgress, translation_pb2.DocumentProgress),
        (MaskCandidate, fill_mask_pb2.MaskCandidate),
        (FilledMask, fill_mask_pb2.FilledMask),
        (FilledText, fill_mask_pb2.FilledText),
        (Embedding, embedding_pb2.Embedding),
        (ScoredLabel, common_pb2.ScoredLabel),
        (ClassifiedText, text_classification_pb2.ClassifiedText),
        (Entity, token_classification_pb2.Entity),
        (LabelledText, token_classification_pb2.LabelledText),
        (Answer, question_answering_pb2.Answer),
        (AnsweredQuestion, question_answering_pb2.AnsweredQuestion),
        (ClassifiedImage, image_classification_pb2.ClassifiedImage),
    ],
)
def test_dataclasses_have_the_fields_of_their_messages(kind: type[Any], message: type[Any]) -> None:
    served = {field.name for field in fields(Served)}
    assert {field.name for field in fields(kind)} - served == set(message.DESCRIPTOR.fields_by_name)


@pytest.mark.parametrize(
    ("kind", "enum"),
    [
        (Pooling, embedding_pb2.Pooling),
        (Aggregation, token_classification_pb2.Aggregation),
        (SplitSentences, translation_pb2.SplitSentences),
        (FinishReason, translation_pb2.FinishReason),
        (ModelState, model_pb2.ModelState),
        (FindingKind, translation_pb2.FindingKind),
        (Severity, translation_pb2.FindingSeverity),
    ],
)
def test_enums_have_the_values_of_the_contract(kind: type[StrEnum], enum: Any) -> None:
    assert set(enum_names(enum.DESCRIPTOR).values()) == {str(member) for member in kind} - {"unknown"}


def test_absent_options_are_absent_on_the_wire() -> None:
    assert options_message(DecodingOptions()).ListFields() == []


def test_zero_and_false_are_present_on_the_wire() -> None:
    message = options_message(DecodingOptions(seed=0, return_scores=False, no_repeat_ngram_size=0))
    assert {field.name for field, _ in message.ListFields()} == {"seed", "return_scores", "no_repeat_ngram_size"}


def test_a_lower_case_name_is_an_enum_value_too() -> None:
    message = options_message(DecodingOptions(split_sentences="off"))
    assert message.split_sentences == translation_pb2.SPLIT_SENTENCES_OFF
    with pytest.raises(ValueError, match="split_sentences is 'none', must be one of: auto, off"):
        options_message(DecodingOptions(split_sentences="none"))


@pytest.mark.parametrize("name", INTEGERS)
def test_negative_options_are_rejected_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is -1, must be 0 or more"):
        DecodingOptions(**{name: -1})


def test_all_unsigned_options_are_checked() -> None:
    unsigned = {f.name for f in translation_pb2.DecodingOptions.DESCRIPTOR.fields if f.type in (f.TYPE_UINT32, f.TYPE_UINT64)}
    assert set(INTEGERS) == unsigned


def test_options_reject_a_single_text() -> None:
    with pytest.raises(TypeError, match="target_prefix"):
        DecodingOptions(target_prefix="Good")


def test_hypothesis() -> None:
    message = translation_pb2.Hypothesis(text="a", score=-1.5, finish_reason=translation_pb2.FINISH_REASON_LENGTH)
    message.alignment.add(source_weights=[0.25, 0.75])
    message.tokens.add(start=0, end=1)
    hypothesis = hypothesis_from(message)
    assert (hypothesis.score, hypothesis.truncated) == (-1.5, True)
    assert hypothesis.alignment == ((0.25, 0.75),)
    assert hypothesis.spans == ((0, 1),)


def test_unknown_enum_numbers_are_unknown() -> None:
    assert hypothesis_from(translation_pb2.Hypothesis(finish_reason=99)).finish_reason is FinishReason.UNKNOWN
    assert model_from(model_pb2.Model(state=99)).state is ModelState.UNKNOWN


def test_model_has_its_languages() -> None:
    model = model_from(model_pb2.Model(name="m", source_language_codes=["de", "fr"], target_language_codes=["en"]))
    assert (model.source_languages, model.target_languages, model.labels) == (("de", "fr"), ("en",), ())
