"""Parameters: their types, and that each task has all of its options."""

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.translation.options import DecodingOptions
from triptych_serving.services.oip.parameters import FLAG, NUMBER, SEED, TEXT, TEXTS, WHOLE, choice, parameters_from
from triptych_serving.services.oip.translation import OPTIONS

from .messages import parameter

KINDS = {
    "whole": WHOLE,
    "seed": SEED,
    "number": NUMBER,
    "flag": FLAG,
    "text": TEXT,
    "texts": TEXTS,
    "choice": choice(auto=True, off=False),
}


def test_every_option_of_decoding_is_a_parameter() -> None:
    assert set(OPTIONS) == {field.name for field in fields(DecodingOptions)}


def test_values_of_every_kind() -> None:
    given_values = {
        "whole": 3,
        "seed": 2**64 - 1,
        "number": 1,
        "flag": True,
        "text": "a",
        "texts": '["a", "b"]',
        "choice": "off",
    }
    values = parameters_from({name: parameter(value) for name, value in given_values.items()}, KINDS)
    assert values == {
        "whole": 3,
        "seed": 2**64 - 1,
        "number": 1.0,
        "flag": True,
        "text": "a",
        "texts": ("a", "b"),
        "choice": False,
    }


def test_the_protocols_own_parameters_are_no_options() -> None:
    assert parameters_from({"triton_enable_empty_final_response": parameter(True)}, KINDS) == {}


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("whole", "3", "'3' is not an integer of 0 to 2^32 - 1"),
        ("whole", True, "True is not an integer"),
        ("whole", -1, "-1 is not an integer"),
        ("whole", 2**32, "4294967296 is not an integer"),
        ("whole", 1.0, "1.0 is not an integer"),
        ("seed", -1, "-1 is not an integer of 0 to 2^64 - 1"),
        ("number", "1", "'1' is not a number"),
        ("number", False, "False is not a number"),
        ("flag", 1, "1 is not a boolean"),
        ("text", 1, "1 is not a string"),
        ("texts", "a", "'a' is not a string with a JSON array of strings"),
        ("texts", "[1]", "'[1]' is not"),
        ("texts", "[" * 100_000, "... is not a string with a JSON array"),
        ("choice", "on", "'on' is not one of 'auto', 'off'"),
        ("size", 1, "there is no such parameter; there are: choice, flag, number, seed, text, texts, whole"),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, value: object, problem: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        parameters_from({name: parameter(value)}, KINDS)
    assert error.value.field == f"parameters.{name}"
    assert problem in error.value.problem
    assert len(error.value.problem) < 200


def test_a_parameter_without_a_value() -> None:
    with pytest.raises(InvalidInputError, match=r"parameters\.flag: None is not a boolean"):
        parameters_from({"flag": pb.InferParameter()}, KINDS)


VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_subnormal=False),
    st.text(),
    st.sampled_from(["[]", '["a"]', '["\\ud800"]', "{}"]),
)


@given(st.sampled_from(sorted(KINDS)), VALUES)
def test_any_value_is_taken_or_refused(name: str, value: Any) -> None:
    try:
        values = parameters_from({name: parameter(value)}, KINDS)
    except InvalidInputError:
        return
    assert set(values) == {name}
