from dataclasses import fields
from typing import Any

import pytest

from triptych.v1 import model_pb2, translation_pb2
from triptych_client import DecodingOptions, FinishReason, ServerError, Timing
from triptych_client.call import Call
from triptych_client.codec import FINISH_REASONS, MODEL_STATES, SPLIT_SENTENCES, hypothesis_from, options_message
from triptych_client.translate_job import TranslateJob

EVERYTHING = slice(None)


def names(kind: type[Any]) -> set[str]:
    return {field.name for field in fields(kind)}


def test_options_are_the_contracts_options() -> None:
    assert names(DecodingOptions) == set(translation_pb2.DecodingOptions.DESCRIPTOR.fields_by_name)


def test_timing_is_the_contracts_timing() -> None:
    assert names(Timing) == set(translation_pb2.TranslateResponse().timing.DESCRIPTOR.fields_by_name)


def test_absent_options_are_absent_on_the_wire() -> None:
    assert options_message(DecodingOptions(), EVERYTHING).ListFields() == []


def test_zero_and_false_are_present_on_the_wire() -> None:
    message = options_message(DecodingOptions(seed=0, return_scores=False, no_repeat_ngram_size=0), EVERYTHING)
    assert {field.name for field, _ in message.ListFields()} == {"seed", "return_scores", "no_repeat_ngram_size"}


COUNTS = [field.name for field in fields(DecodingOptions) if field.metadata["kind"] is int]


@pytest.mark.parametrize("name", COUNTS)
def test_a_negative_count_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is -1, must be 0 or more"):
        DecodingOptions(**{name: -1})


def test_all_counts_are_checked() -> None:
    unsigned = {f.name for f in translation_pb2.DecodingOptions.DESCRIPTOR.fields if f.type in (f.TYPE_UINT32, f.TYPE_UINT64)}
    assert set(COUNTS) == unsigned


@pytest.mark.parametrize(
    ("table", "enum"),
    [
        ({value: key for key, value in SPLIT_SENTENCES.items()}, translation_pb2.SplitSentences),
        (FINISH_REASONS, translation_pb2.FinishReason),
        (MODEL_STATES, model_pb2.ModelState),
    ],
)
def test_every_value_of_an_enum_is_known(table: dict[int, Any], enum: Any) -> None:
    assert set(table) == {number for number in enum.values() if number != 0}


def test_a_lower_case_name_is_an_enum_value_too() -> None:
    message = options_message(DecodingOptions(split_sentences="off"), EVERYTHING)
    assert message.split_sentences == translation_pb2.SPLIT_SENTENCES_OFF
    with pytest.raises(ValueError, match="none"):
        options_message(DecodingOptions(split_sentences="none"), EVERYTHING)


def test_hypothesis() -> None:
    message = translation_pb2.Hypothesis(text="a", score=-1.5, finish_reason=translation_pb2.FINISH_REASON_LENGTH)
    message.alignment.add(source_weights=[0.25, 0.75])
    message.tokens.add(start=0, end=1)
    hypothesis = hypothesis_from(message)
    assert (hypothesis.score, hypothesis.truncated) == (-1.5, True)
    assert hypothesis.alignment == ((0.25, 0.75),)
    assert hypothesis.spans == ((0, 1),)


def test_a_finish_reason_from_the_future_is_unknown() -> None:
    assert hypothesis_from(translation_pb2.Hypothesis(finish_reason=99)).finish_reason is FinishReason.UNKNOWN


@pytest.mark.parametrize("translations", [[], [translation_pb2.Translation(translated_text="no hypotheses")]])
def test_a_response_that_does_not_fit_its_request_is_an_error(translations: list[translation_pb2.Translation]) -> None:
    job = TranslateJob(call=Call("mine", 1.0, 0), texts=["a"])
    with pytest.raises(ServerError) as caught:
        job.results(job.requests(64, 1000), [translation_pb2.TranslateResponse(translations=translations)])
    assert caught.value.request_id == "mine"
