"""Tensors on the wire, compared with tritonclient's own codec."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

from triptych_serving.errors import InvalidInputError
from triptych_serving.services.oip.tensors import BYTES, FP32, INT64, MAX_ELEMENTS, UINT32, count_of, encode, pack, unpack

ELEMENTS = st.lists(st.binary(max_size=20), max_size=8)


@given(ELEMENTS)
def test_what_is_packed_is_unpacked(elements: list[bytes]) -> None:
    assert unpack("text", pack(elements), len(elements)) == elements


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=8))
def test_it_is_as_tritonclient_packs_and_unpacks(elements: list[bytes]) -> None:
    array = np.array([None, *elements], object)[1:]
    packed = serialize_byte_tensor(array).item()
    assert unpack("text", packed, len(elements)) == elements
    assert deserialize_bytes_tensor(pack(elements)).tolist() == elements


@given(st.binary(max_size=60), st.integers(0, 12))
def test_whatever_comes_is_unpacked_to_the_last_byte_or_refused(raw: bytes, count: int) -> None:
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
        (pack([b"a", b"b", b"c"]), "its raw contents go on for 5 bytes after the 2 of its shape"),
    ],
)
def test_raw_contents_that_do_not_fit_are_explained(raw: bytes, problem: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        unpack("text", raw, 2)
    assert problem in error.value.problem


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_shapes_of_three(shape: tuple[int, ...]) -> None:
    assert count_of("text", shape) == 3


@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        ((), "shape [] is not [n] or [n, 1]"),
        ((2, 2), "shape [2, 2] is not"),
        ((1, 1, 1), "shape [1, 1, 1] is not"),
        ((1, -1), "shape [1, -1] is not"),
        ((1,) * 9, "shape [1, 1, 1, 1, 1, ...] is not"),
        ((0,), "has 0 elements, it must have 1 to 16,384"),
        ((-1, 1), "has -1 elements"),
        ((MAX_ELEMENTS + 1,), "has 16,385 elements"),
        ((2**63 - 1,), "has 9,223,372,036,854,775,807 elements"),
    ],
)
def test_other_shapes_are_refused(shape: tuple[int, ...], problem: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        count_of("text", shape)
    assert problem in error.value.problem


def decoded(values: Any, rank: int, datatype: str) -> list[Any]:
    shape, raw = encode(values, rank, datatype)
    kinds = {FP32: np.float32, INT64: np.int64, UINT32: np.uint32}
    flat = deserialize_bytes_tensor(raw) if datatype == BYTES else np.frombuffer(raw, kinds[datatype])
    result: list[Any] = flat.reshape(shape).tolist()
    return result


def test_what_is_ragged_is_filled_up() -> None:
    assert decoded([["a"], ["b", "ö"]], 2, BYTES) == [[b"a", b""], [b"b", "ö".encode()]]
    assert decoded([[1.5], []], 2, FP32) == [[1.5], [0.0]]
    assert decoded([[[7, 8]], [[1], [2, 3]]], 3, INT64) == [[[7, 8], [-1, -1]], [[1, -1], [2, 3]]]
    assert decoded([2**32 - 1, 0], 1, UINT32) == [2**32 - 1, 0]


@given(st.lists(st.lists(st.lists(st.binary(max_size=4), max_size=3), max_size=3), min_size=1, max_size=4))
def test_every_element_of_a_ragged_result_is_where_it_was(values: list[list[list[bytes]]]) -> None:
    shape, raw = encode(values, 3, BYTES)
    array = unpack("output", raw, int(np.prod(shape)))
    cube = np.array([None, *array], object)[1:].reshape(shape)
    filled = {(i, j, k): cell for i, rows in enumerate(values) for j, row in enumerate(rows) for k, cell in enumerate(row)}
    assert {place: cube[place] for place in np.ndindex(shape)} == dict.fromkeys(np.ndindex(shape), b"") | filled
