"""Parameters of requests: types and conversion."""

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.decoding import DecodingOptions, SplitSentences
from triptych.inference import open_inference_pb2 as pb
from triptych_serving.errors import InvalidInputError
from triptych_serving.services.oip.parameters import FLAG, INTEGER, INTEGER_64, NUMBER, TEXT, TEXTS, choice, parameters_from
from triptych_serving.services.oip.tasks import OPTIONS

from .messages import parameter

TYPES = {
    "integer": INTEGER,
    "seed": INTEGER_64,
    "number": NUMBER,
    "flag": FLAG,
    "text": TEXT,
    "texts": TEXTS,
    "choice": choice(auto=True, off=False),
}


def test_every_decoding_option_is_a_parameter() -> None:
    assert set(OPTIONS) == {field.name for field in fields(DecodingOptions)}
    types = {OPTIONS[name].text for name in ("beam_size", "min_length", "sampling_topk")}
    assert types == {INTEGER.text}
    assert OPTIONS["seed"].text == INTEGER_64.text
    assert [OPTIONS[name] for name in ("patience", "return_scores", "target_prefix")] == [NUMBER, FLAG, TEXTS]
    assert OPTIONS["split_sentences"].convert("off") == SplitSentences.OFF


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("integer", 3, 3),
        ("seed", 2**64 - 1, 2**64 - 1),
        ("number", 1, 1.0),
        ("flag", True, True),
        ("text", "a", "a"),
        ("texts", '["a", "b"]', ("a", "b")),
        ("choice", "off", False),
    ],
)
def test_valid_value(name: str, value: object, expected: object) -> None:
    assert parameters_from({name: parameter(value)}, TYPES) == {name: expected}
    assert parameters_from({"triton_enable_empty_final_response": parameter(True)}, TYPES) == {}


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("integer", "3", "'3' is not an integer of 0 to 2^32 - 1"),
        ("integer", True, "True is not an integer"),
        ("integer", -1, "-1 is not an integer"),
        ("integer", 2**32, "4294967296 is not an integer"),
        ("integer", 1.0, "1.0 is not an integer"),
        ("seed", -1, "-1 is not an integer of 0 to 2^64 - 1"),
        ("number", "1", "'1' is not a number"),
        ("number", False, "False is not a number"),
        ("flag", 1, "1 is not a boolean"),
        ("text", 1, "1 is not a string"),
        ("texts", "a", "'a' is not a string with a JSON array of strings"),
        ("texts", "[1]", "'[1]' is not"),
        ("texts", "[" * 100_000, "... is not a string with a JSON array"),
        ("choice", "on", "'on' is not one of 'auto', 'off'"),
        ("size", 1, "there is no such parameter; there are: choice, flag, integer, number, seed, text, texts"),
    ],
)
def test_invalid_value_is_rejected(name: str, value: object, problem: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        parameters_from({name: parameter(value)}, TYPES)
    assert error.value.field == f"parameters.{name}"
    assert problem in error.value.problem
    assert len(error.value.problem) < 200


def test_parameter_without_a_value() -> None:
    with pytest.raises(InvalidInputError, match=r"parameters\.flag: None is not a boolean"):
        parameters_from({"flag": pb.InferParameter()}, TYPES)


VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_subnormal=False),
    st.text(),
    st.sampled_from(["[]", '["a"]', '["\\ud800"]', "{}"]),
)


@given(st.sampled_from(sorted(TYPES)), VALUES)
def test_any_value_is_accepted_or_rejected(name: str, value: Any) -> None:
    try:
        values = parameters_from({name: parameter(value)}, TYPES)
    except InvalidInputError:
        return
    assert set(values) == {name}
