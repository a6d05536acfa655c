"""Input tensors, and the encoding of tensors, compared with tritonclient's."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

from triptych_serving.bundle.manifest.tensors import BYTES
from triptych_serving.errors import InvalidInputError, TooLargeError
from triptych_serving.services.oip.tensors import (
    FP32,
    INT64,
    MAX_ELEMENTS,
    UINT32,
    InputSpec,
    count_of,
    encode,
    inputs_from,
    unpack,
)

from .messages import pack, parameter, request, tensor


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=8))
def test_tritonclient_packs_and_unpacks_the_same(elements: list[bytes]) -> None:
    array = np.array([None, *elements], object)[1:]
    packed = serialize_byte_tensor(array).item()
    assert unpack("text", packed, len(elements)) == elements
    assert deserialize_bytes_tensor(pack(elements)).tolist() == elements


@given(st.binary(max_size=60), st.integers(0, 12))
def test_any_contents_are_unpacked_completely_or_rejected(raw: bytes, count: int) -> None:
    try:
        elements = unpack("text", raw, count)
    except InvalidInputError:
        return
    assert len(elements) == count
    assert pack(elements) == raw


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "its raw contents end before element 0, its shape has 2"),
        (struct.pack("<I", 1) + b"a" + b"\1\0", "its raw contents end before element 1"),
        (struct.pack("<I", 2**32 - 1) + b"a", "element 0 has a length of 4,294,967,295 bytes, but only 1 follow"),
        (pack([b"a", b"b", b"c"]), "its raw contents have 5 bytes after the 2 elements of its shape"),
    ],
)
def test_invalid_raw_contents(raw: bytes, problem: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        unpack("text", raw, 2)
    assert problem in error.value.problem


@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        ((), "shape [] is not [n] or [n, 1]"),
        ((2, 2), "shape [2, 2] is not"),
        ((1, 1, 1), "shape [1, 1, 1] is not"),
        ((1, -1), "shape [1, -1] is not"),
        ((1,) * 9, "shape [1, 1, 1, 1, 1, ...] is not"),
        ((0,), "has 0 elements, must have 1 to 16,384"),
        ((-1, 1), "has -1 elements"),
        ((MAX_ELEMENTS + 1,), "has 16,385 elements"),
        ((2**63 - 1,), "has 9,223,372,036,854,775,807 elements"),
    ],
)
def test_invalid_shapes(shape: tuple[int, ...], problem: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        count_of("text", shape)
    assert problem in error.value.problem


def decoded(values: Any, rank: int, datatype: str) -> list[Any]:
    shape, raw = encode(values, rank, datatype)
    kinds = {FP32: np.float32, INT64: np.int64, UINT32: np.uint32}
    flat = deserialize_bytes_tensor(bytes(raw)) if datatype == BYTES else np.frombuffer(raw, kinds[datatype])
    result: list[Any] = flat.reshape(shape).tolist()
    return result


def test_ragged_results_are_padded() -> None:
    assert decoded([["a"], ["b", "ö"]], 2, BYTES) == [[b"a", b""], [b"b", "ö".encode()]]
    assert decoded([[1.5], []], 2, FP32) == [[1.5], [0.0]]
    assert decoded([[[7, 8]], [[1], [2, 3]]], 3, INT64) == [[[7, 8], [-1, -1]], [[1, -1], [2, 3]]]
    assert decoded([2**32 - 1, 0], 1, UINT32) == [2**32 - 1, 0]


@given(st.lists(st.lists(st.lists(st.binary(max_size=4), max_size=3), max_size=3), min_size=1, max_size=4))
def test_elements_of_a_ragged_result_keep_their_position(values: list[list[list[bytes]]]) -> None:
    shape, raw = encode(values, 3, BYTES)
    array = unpack("output", bytes(raw), int(np.prod(shape)))
    cube = np.array([None, *array], object)[1:].reshape(shape)
    filled = {(i, j, k): cell for i, rows in enumerate(values) for j, row in enumerate(rows) for k, cell in enumerate(row)}
    assert {place: cube[place] for place in np.ndindex(shape)} == dict.fromkeys(np.ndindex(shape), b"") | filled


@pytest.mark.parametrize(
    ("parts", "rank", "datatype", "size"),
    [
        (["a", "ö"], 1, BYTES, 3 + 2 * 4),
        ([["a", b"bc"], []], 2, BYTES, 3 + 4 * 4),  # padded with two empty elements
        ([[[1.0], [2.0]], [[3.0]]], 3, FP32, 4 * 4),
        ([[7] * 3, []], 2, INT64, 6 * 8),
    ],
)
def test_the_size_is_checked_before_the_contents_are_made(parts: list[Any], rank: int, datatype: str, size: int) -> None:
    sizes: list[int] = []
    _, raw = encode(iter(parts), rank, datatype, sizes.append)
    assert sizes == sorted(sizes)
    assert sizes[-1] == len(raw) == size


def test_reading_stops_at_the_limit() -> None:
    def check(size: int) -> None:
        if size > 10:
            raise TooLargeError("too large")

    parts = iter(["four"] * 1_000)
    with pytest.raises(TooLargeError):
        encode(parts, 1, BYTES, check)
    assert len(list(parts)) == 997


SPECS = (InputSpec("text"), InputSpec("text_pair", optional=True))


def fault(*inputs: Any, raw: Any = ()) -> str:
    with pytest.raises(InvalidInputError) as error:
        inputs_from(request(*inputs, raw=raw), SPECS).texts("text")
    return str(error.value)


@pytest.mark.parametrize("shape", [[2], [2, 1]])
def test_contents_and_raw_contents_are_equal(shape: list[int]) -> None:
    own = inputs_from(request(tensor("text", shape, [b"a", b"\xc3\xb6"])), SPECS)
    raw = inputs_from(request(tensor("text", shape), raw=[[b"a", b"\xc3\xb6"]]), SPECS)
    assert own == raw
    assert own.texts("text") == ["a", "ö"]
    assert own.texts("text_pair") == []
    assert own.is_column is (len(shape) == 2)
    both = inputs_from(request(tensor("text_pair", [1]), tensor("text", [1]), raw=[[b"b"], [b"a"]]), SPECS)
    assert (both.texts("text"), both.texts("text_pair")) == (["a"], ["b"])  # in any order


def test_invalid_inputs() -> None:
    one, two = tensor("text", [1], [b"a"]), tensor("text_pair", [2], [b"a", b"b"])
    assert fault() == "inputs: missing input text; there are: text, text_pair (optional)"
    assert fault(one, tensor("picture", [1], [b""])) == (
        "inputs[1].name: there is no input 'picture'; there are: text, text_pair (optional)"
    )
    assert fault(one, one) == "inputs[1].name: duplicate name 'text'"
    assert fault(one, two) == "text_pair: it has 2 elements, text has 1"
    assert fault(tensor("text", [1], [b"a"], "FP32")) == "text: its datatype is 'FP32', must be 'BYTES'"
    assert fault(tensor("text", [2], [b"a"])) == "text: its contents have 1 elements, its shape has 2"
    assert fault(tensor("text", [1], [b"\xff"])) == "text[0]: not UTF-8: invalid start byte at byte 0"
    both = "text: it has contents twice: send either raw_input_contents or contents"
    assert fault(one, raw=[[b"a"]]) == both
    assert fault(tensor("text", [1])) == "text: its contents have 0 elements, its shape has 1"
    assert fault(tensor("text", [1]), raw=[[b"a"], [b"b"]]) == "raw_input_contents: 2 contents for 1 inputs, send one for each"
    two.parameters["shared_memory_region"].CopyFrom(parameter("a"))
    assert fault(one, two) == (
        "text_pair: it has a parameter 'shared_memory_region', inputs take none; shared memory is not supported"
    )
    one.contents.fp32_contents.append(1.0)
    assert fault(one) == "text: it has fp32_contents, a BYTES tensor has bytes_contents"
