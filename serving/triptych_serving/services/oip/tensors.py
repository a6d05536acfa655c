"""Tensors on the wire: shapes, and elements as raw bytes."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triptych_serving.errors import InvalidInputError

BYTES, FP32, INT64, UINT32 = "BYTES", "FP32", "INT64", "UINT32"
KINDS: dict[str, Any] = {BYTES: object, FP32: np.dtype("<f4"), INT64: np.dtype("<i8"), UINT32: np.dtype("<u4")}
FILL: dict[str, Any] = {BYTES: b"", FP32: 0.0, INT64: -1, UINT32: 0}  # where a ragged result is made rectangular
MAX_ELEMENTS = 16_384  # of one input; more texts than a queue takes unless it was told otherwise
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class TensorInput:
    """A tensor that a request has: BYTES, one element a text or image."""

    name: str
    optional: bool = False


def count_of(name: str, shape: Sequence[int]) -> int:
    """Elements of an input.

    Raises:
        InvalidInputError: the shape is neither [n] nor [n, 1], or n is out of range.
    """
    if not shape or len(shape) > 2 or tuple(shape[1:]) not in ((), (1,)):
        raise InvalidInputError(name, f"shape {_shown(shape)} is not [n] or [n, 1]")
    if not 1 <= shape[0] <= MAX_ELEMENTS:
        raise InvalidInputError(name, f"shape {_shown(shape)} has {shape[0]:,} elements, it must have 1 to {MAX_ELEMENTS:,}")
    return shape[0]


def unpack(name: str, raw: bytes, count: int) -> list[bytes]:
    """A BYTES tensor's elements, each of which has its length before it, 4 bytes, little-endian.

    Raises:
        InvalidInputError: there are not `count` of them, or what is there does not end with the last.
    """
    elements, place = [], 0
    for index in range(count):
        if place + _LENGTH.size > len(raw):
            raise InvalidInputError(name, f"its raw contents end before element {index}, its shape has {count:,}")
        [length] = _LENGTH.unpack_from(raw, place)
        place += _LENGTH.size
        if place + length > len(raw):
            left = len(raw) - place
            raise InvalidInputError(name, f"element {index} has a length of {length:,} bytes, but only {left:,} follow")
        elements.append(raw[place : place + length])
        place += length
    if place < len(raw):
        raise InvalidInputError(name, f"its raw contents go on for {len(raw) - place:,} bytes after the {count:,} of its shape")
    return elements


def pack(elements: Iterable[bytes]) -> bytes:
    """The other way round."""
    return b"".join(part for element in elements for part in (_LENGTH.pack(len(element)), element))


def encode(values: Sequence[Any] | NDArray[Any], rank: int, datatype: str) -> tuple[tuple[int, ...], bytes]:
    """Shape and raw contents of nested sequences; text stands for its UTF-8. FILL makes ragged ones rectangular."""
    array = np.full(_shape(values, rank), FILL[datatype], KINDS[datatype])
    _copy(values, array)
    if datatype == BYTES:
        return array.shape, pack(element.encode() if isinstance(element, str) else element for element in array.flat)
    return array.shape, array.tobytes()


def _shape(values: Sequence[Any] | NDArray[Any], rank: int) -> tuple[int, ...]:
    """The smallest that they fit into."""
    if rank == 1 or not len(values):
        return (len(values), *(0,) * (rank - 1))
    return (len(values), *map(max, zip(*(_shape(part, rank - 1) for part in values), strict=True)))


def _copy(values: Sequence[Any] | NDArray[Any], array: NDArray[Any]) -> None:
    if array.ndim == 1:
        array[: len(values)] = values
        return
    for part, row in zip(values, array, strict=False):  # there may be more rows
        _copy(part, row)


def _shown(shape: Sequence[int]) -> str:
    shown = ", ".join(map(str, shape[:5]))
    return f"[{shown}{', ...' if len(shape) > 5 else ''}]"
