"""Input tensors: whatever is wrong with them is said, by name."""

from typing import Any

import pytest

from triptych_serving.errors import InvalidInputError
from triptych_serving.services.oip.inputs import inputs_from
from triptych_serving.services.oip.tensors import TensorInput

from .messages import parameter, request, tensor

KNOWN = (TensorInput("text"), TensorInput("text_pair", optional=True))


def fault(*inputs: Any, raw: Any = ()) -> str:
    with pytest.raises(InvalidInputError) as error:
        inputs_from(request(*inputs, raw=raw), KNOWN).texts("text")
    return str(error.value)


@pytest.mark.parametrize("shape", [[2], [2, 1]])
def test_contents_and_raw_contents_mean_the_same(shape: list[int]) -> None:
    own = inputs_from(request(tensor("text", shape, [b"a", b"\xc3\xb6"])), KNOWN)
    raw = inputs_from(request(tensor("text", shape), raw=[[b"a", b"\xc3\xb6"]]), KNOWN)
    assert own == raw
    assert own.texts("text") == ["a", "ö"]
    assert own.texts("text_pair") == []
    assert own.is_column is (len(shape) == 2)


def test_the_order_of_inputs_is_free() -> None:
    made = inputs_from(request(tensor("text_pair", [1]), tensor("text", [1]), raw=[[b"b"], [b"a"]]), KNOWN)
    assert (made.texts("text"), made.texts("text_pair")) == (["a"], ["b"])


def test_inputs_that_do_not_fit() -> None:
    one, two = tensor("text", [1], [b"a"]), tensor("text_pair", [2], [b"a", b"b"])
    assert fault() == "inputs: there is no text, which is needed; there are: text, text_pair (optional)"
    assert fault(one, tensor("picture", [1], [b""])) == (
        "inputs[1].name: there is no input 'picture'; there are: text, text_pair (optional)"
    )
    assert fault(one, one) == "inputs[1].name: 'text' is there twice"
    assert fault(one, two) == "text_pair: it has 2 elements, text has 1"
    assert fault(tensor("text", [1], [b"a"], "FP32")) == "text: its datatype is 'FP32', it must be 'BYTES'"
    assert fault(tensor("text", [2], [b"a"])) == "text: its contents have 1 elements, its shape has 2"
    assert fault(tensor("text", [1], [b"\xff"])) == "text[0]: it is not UTF-8: invalid start byte at byte 0"


def test_contents_in_both_places_or_in_none() -> None:
    both = "text: its contents are there twice: send raw_input_contents, or contents, not both"
    assert fault(tensor("text", [1], [b"a"]), raw=[[b"a"]]) == both
    assert fault(tensor("text", [1])) == "text: its contents have 0 elements, its shape has 1"
    assert fault(tensor("text", [1]), raw=[[b"a"], [b"b"]]) == "raw_input_contents: there are 2 for 1 inputs, send one for each"


def test_contents_of_another_type() -> None:
    wrong = tensor("text", [1], [b"a"])
    wrong.contents.fp32_contents.append(1.0)
    assert fault(wrong) == "text: it has fp32_contents, a BYTES tensor has bytes_contents"


def test_shared_memory_is_not_offered() -> None:
    shared = tensor("text", [1])
    shared.parameters["shared_memory_region"].CopyFrom(parameter("a"))
    assert fault(shared) == "text: it has a parameter 'shared_memory_region', inputs take none; shared memory is not offered"
