"""Every option of the contract: accepted, out of range, or not built yet."""

from dataclasses import fields
from typing import Any

import pytest

from triptych.v1 import translation_pb2
from triptych_serving.errors import InvalidInputError, UnsupportedError
from triptych_serving.options import DecodingOptions, check_options
from triptych_serving.servicers.codec import options_from

MAX_TARGET_TOKENS = 64
NAMES = [field.name for field in fields(DecodingOptions)]

NEUTRAL: dict[str, list[Any]] = {
    "beam_size": [1],
    "patience": [1.0],
    "num_hypotheses": [1],
    "length_penalty": [1.0],
    "coverage_penalty": [0.0],
    "repetition_penalty": [1.0],
    "no_repeat_ngram_size": [0],
    "suppress_sequences": [[]],
    "min_length": [0],
    "max_length": [1, 10, 63],
    "target_prefix": [[]],
    "sampling_temperature": [1.0],
    "sampling_topk": [1],
    "sampling_topp": [1.0],
    "seed": [0, 1, 2**64 - 1],
    "return_scores": [False],
    "return_alignment": [False],
    "split_sentences": [translation_pb2.SPLIT_SENTENCES_UNSPECIFIED, translation_pb2.SPLIT_SENTENCES_OFF],
}
NAN = float("nan")
OUT_OF_RANGE: dict[str, list[Any]] = {
    "beam_size": [0],
    "patience": [0.0, -1.0, NAN],
    "num_hypotheses": [0],
    "coverage_penalty": [-0.5, NAN],
    "repetition_penalty": [0.0, -1.0],
    "max_length": [0, 64, 2**32 - 1],
    "sampling_temperature": [0.0, -0.1],
    "sampling_topp": [0.0, -0.5, 1.5],
    "split_sentences": [17],
}
NOT_BUILT: dict[str, list[Any]] = {
    "beam_size": [2, 5],
    "patience": [2.0],
    "num_hypotheses": [2],
    "length_penalty": [0.0, 0.6, -1.0],
    "coverage_penalty": [0.2],
    "repetition_penalty": [1.2],
    "no_repeat_ngram_size": [3],
    "suppress_sequences": [["Haus"]],
    "min_length": [5],
    "target_prefix": [["Der"]],
    "sampling_temperature": [0.7],
    "sampling_topk": [0, 10],
    "sampling_topp": [0.9],
    "return_scores": [True],
    "return_alignment": [True],
    "split_sentences": [translation_pb2.SPLIT_SENTENCES_AUTO],
}


def cases(table: dict[str, list[Any]]) -> list[Any]:
    return [pytest.param(name, value, id=f"{name}={value}") for name, values in table.items() for value in values]


def check(name: str, value: Any) -> None:
    """As a request would: from the wire's message on."""
    check_options(options_from(translation_pb2.DecodingOptions(**{name: value})), MAX_TARGET_TOKENS)


def test_the_wire_and_the_server_know_the_same_options() -> None:
    wire = [field.name for field in translation_pb2.DecodingOptions.DESCRIPTOR.fields]
    assert wire == NAMES


def test_every_option_is_in_these_tables() -> None:
    assert set(NEUTRAL) == set(NAMES)
    assert set(NOT_BUILT) == set(NAMES) - {"max_length", "seed"}


def test_no_options_are_good_options() -> None:
    check_options(options_from(translation_pb2.DecodingOptions()), MAX_TARGET_TOKENS)


def test_absent_options_are_none_or_empty() -> None:
    assert options_from(translation_pb2.DecodingOptions()) == DecodingOptions()


def test_values_arrive_as_they_were_sent() -> None:
    message = translation_pb2.DecodingOptions(beam_size=4, length_penalty=0.5, target_prefix=["a", "b"], return_scores=False)
    assert options_from(message) == DecodingOptions(
        beam_size=4, length_penalty=0.5, target_prefix=("a", "b"), return_scores=False
    )


@pytest.mark.parametrize(("name", "value"), cases(NEUTRAL))
def test_what_greedy_search_does_anyway_is_accepted(name: str, value: Any) -> None:
    check(name, value)


@pytest.mark.parametrize(("name", "value"), cases(OUT_OF_RANGE))
def test_out_of_range_names_the_option(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError) as error:
        check(name, value)
    assert error.value.field == f"options.{name}"


@pytest.mark.parametrize(("name", "value"), cases(NOT_BUILT))
def test_what_is_not_built_yet_names_the_option(name: str, value: Any) -> None:
    with pytest.raises(UnsupportedError, match=rf"^options\.{name}: .* is not available in this release"):
        check(name, value)


def test_the_length_limit_is_the_models() -> None:
    with pytest.raises(InvalidInputError, match="64 is above the model's limit of 63 tokens"):
        check("max_length", 64)


def test_out_of_range_comes_before_not_built() -> None:
    with pytest.raises(InvalidInputError):
        check_options(DecodingOptions(beam_size=4, sampling_topp=2.0), MAX_TARGET_TOKENS)
