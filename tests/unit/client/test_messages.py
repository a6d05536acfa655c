"""Conversion between the client's values and the wire's messages."""

import pickle
import struct
from dataclasses import fields
from typing import Any

import pytest
from google.protobuf import descriptor_pool

import triptych_client as client
from triptych.v1 import attention_pb2, model_pb2, translation_pb2
from triptych_client import DecodingOptions, FinishReason, ModelState
from triptych_client.messages import attention_from, enum_names, hypothesis_from, model_from, options_message
from triptych_client.results import Served

POOL = descriptor_pool.Default()
INTEGERS = [field.name for field in fields(DecodingOptions) if field.metadata["kind"] is int]
SAME_FIELDS = (
    *(client.DecodingOptions, client.Timing, client.TranslationScore, client.DocumentFinding, client.DocumentProgress),
    *(client.MaskCandidate, client.FilledMask, client.FilledText, client.Embedding, client.ScoredLabel, client.ClassifiedText),
    *(client.Entity, client.LabelledText, client.Answer, client.AnsweredQuestion, client.ClassifiedImage),
)
SAME_VALUES = (
    *(client.Pooling, client.Aggregation, client.SplitSentences, client.FinishReason, client.ModelState, client.FindingKind),
    client.Severity,
)


@pytest.mark.parametrize("kind", SAME_FIELDS)
def test_dataclasses_have_the_fields_of_their_messages(kind: type[Any]) -> None:
    served = {field.name for field in fields(Served)}
    message = POOL.FindMessageTypeByName(f"triptych.v1.{kind.__name__}")
    assert {field.name for field in fields(kind)} - served == set(message.fields_by_name)


@pytest.mark.parametrize("kind", SAME_VALUES)
def test_enums_have_the_values_of_the_contract(kind: Any) -> None:
    name = "FindingSeverity" if kind is client.Severity else kind.__name__
    enum = POOL.FindEnumTypeByName(f"triptych.v1.{name}")
    assert set(enum_names(enum).values()) == {str(member) for member in kind} - {"unknown"}


def test_options_on_the_wire_are_checked() -> None:
    assert options_message(DecodingOptions()).ListFields() == []
    message = options_message(DecodingOptions(seed=0, return_scores=False, no_repeat_ngram_size=0))
    assert {field.name for field, _ in message.ListFields()} == {"seed", "return_scores", "no_repeat_ngram_size"}
    message = options_message(DecodingOptions(split_sentences="off"))
    assert message.split_sentences == translation_pb2.SPLIT_SENTENCES_OFF
    with pytest.raises(ValueError, match="split_sentences is 'none', must be one of: auto, off"):
        options_message(DecodingOptions(split_sentences="none"))
    unsigned = {f.name for f in translation_pb2.DecodingOptions.DESCRIPTOR.fields if f.type in (f.TYPE_UINT32, f.TYPE_UINT64)}
    assert set(INTEGERS) == unsigned
    with pytest.raises(TypeError, match="target_prefix"):
        DecodingOptions(target_prefix="Good")


@pytest.mark.parametrize("name", INTEGERS)
def test_negative_options_are_rejected_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is -1, must be 0 or more"):
        DecodingOptions(**{name: -1})


def test_attention_can_be_pickled() -> None:
    weights = attention_pb2.AttentionWeights(layers=1, heads=2, targets=1, sources=2, values=struct.pack("<4f", 1, 2, 3, 4))
    attention = attention_from(attention_pb2.AttendResponse(encoder=weights, target="a", model="m"))
    copied = pickle.loads(pickle.dumps(attention))
    assert copied == attention
    assert copied.encoder.tolist() == [[[[1, 2]], [[3, 4]]]]
    assert copied.decoder is None


def test_hypotheses_and_models() -> None:
    message = translation_pb2.Hypothesis(text="a", score=-1.5, finish_reason=translation_pb2.FINISH_REASON_LENGTH)
    message.alignment.add(source_weights=[0.25, 0.75])
    message.tokens.add(start=0, end=1)
    hypothesis = hypothesis_from(message)
    assert (hypothesis.score, hypothesis.truncated) == (-1.5, True)
    assert hypothesis.alignment == ((0.25, 0.75),)
    assert hypothesis.spans == ((0, 1),)
    assert hypothesis_from(translation_pb2.Hypothesis(finish_reason=99)).finish_reason is FinishReason.UNKNOWN
    assert model_from(model_pb2.Model(state=99)).state is ModelState.UNKNOWN
    model = model_from(model_pb2.Model(name="m", source_language_codes=["de", "fr"], target_language_codes=["en"]))
    assert (model.source_languages, model.target_languages, model.labels) == (("de", "fr"), ("en",), ())
