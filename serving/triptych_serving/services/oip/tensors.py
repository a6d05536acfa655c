"""Tensors: input tensors are checked and unpacked, results are encoded as output tensors."""

import struct
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.bundle.manifest.tensors import BYTES, NUMPY
from triptych_serving.errors import InvalidInputError

FP32, INT64, UINT32 = "FP32", "INT64", "UINT32"
FILL: dict[str, Any] = {FP32: 0.0, INT64: -1, UINT32: 0}  # pads ragged results to a rectangle; of BYTES, empty elements do
# Where a tensor that is not raw has its values.
CONTENTS: Mapping[str, str] = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    BYTES: "bytes_contents",
}
MAX_ELEMENTS = 16_384  # of one input; more than a queue accepts by default
MAX_RANK = 64  # dimensions, as numpy has at most; the product of many large ones would take minutes
Buffer = bytes | bytearray | memoryview
_LENGTH = struct.Struct("<I")

InferInputTensor = pb.ModelInferRequest.InferInputTensor
InferOutput = pb.ModelInferRequest.InferRequestedOutputTensor


@dataclass(frozen=True)
class InputSpec:
    """An input tensor of a task: BYTES, one element for each text or image."""

    name: str
    optional: bool = False


@dataclass(frozen=True)
class InputTensors:
    """The input tensors of a request, all with the same number of elements."""

    is_column: bool  # shape [n, 1]; outputs with one value per element then have this shape, too
    elements: Mapping[str, Sequence[bytes]]

    def texts(self, name: str) -> list[str]:
        """Decode the elements of a tensor; empty if it was left out. Raises InvalidInputError: an element is not UTF-8."""
        return [_decode(f"{name}[{index}]", element) for index, element in enumerate(self.elements.get(name, ()))]


def inputs_from(request: pb.ModelInferRequest, specs: Sequence[InputSpec]) -> InputTensors:
    """Check and unpack the input tensors of a request for a task with these inputs.

    Raises:
        InvalidInputError: a tensor is missing, unknown, or has a wrong datatype, shape or contents; names it.
    """
    _check_names([tensor.name for tensor in request.inputs], specs)
    raw = raw_contents(request)
    ranks = {tensor.name: len(tensor.shape) for tensor in request.inputs}
    elements = {tensor.name: elements_of(tensor, contents) for tensor, contents in zip(request.inputs, raw, strict=True)}
    first = next((spec.name for spec in specs if spec.name in elements), "")
    count = len(elements[first]) if first else 0
    for name, own in elements.items():
        if len(own) != count:
            raise InvalidInputError(name, f"it has {len(own):,} elements, {first} has {count:,}")
    return InputTensors(ranks.get(first) == 2, elements)


def count_of(name: str, shape: Sequence[int]) -> int:
    """Return the number of elements of an input.

    Raises:
        InvalidInputError: the shape is neither [n] nor [n, 1], or n is out of range.
    """
    if not shape or len(shape) > 2 or tuple(shape[1:]) not in ((), (1,)):
        raise InvalidInputError(name, f"shape {_format(shape)} is not [n] or [n, 1]")
    return _check_count(name, shape)


def shape_of(tensor: InferInputTensor) -> tuple[int, ...]:
    """Return the shape of an input. Raises InvalidInputError: it has too many dimensions, or a negative size."""
    if (rank := len(tensor.shape)) > MAX_RANK:
        raise InvalidInputError(tensor.name, f"its shape has {rank:,} dimensions, must have at most {MAX_RANK}")
    if min(tensor.shape, default=1) < 0:
        raise InvalidInputError(tensor.name, f"shape {_format(tensor.shape)} has a negative size")
    return tuple(tensor.shape)


def unpack(name: str, raw: bytes, count: int) -> list[bytes]:
    """Unpack the elements of a BYTES tensor, each after its length: 4 bytes, little-endian.

    Raises:
        InvalidInputError: the contents do not have exactly `count` elements.
    """
    elements, offset = [], 0
    for index in range(count):
        if offset + _LENGTH.size > len(raw):
            raise InvalidInputError(name, f"its raw contents end before element {index}, its shape has {count:,}")
        [length] = _LENGTH.unpack_from(raw, offset)
        offset += _LENGTH.size
        if offset + length > len(raw):
            left = len(raw) - offset
            raise InvalidInputError(name, f"element {index} has a length of {length:,} bytes, but only {left:,} follow")
        elements.append(raw[offset : offset + length])
        offset += length
    if offset < len(raw):
        more = len(raw) - offset
        raise InvalidInputError(name, f"its raw contents have {more:,} bytes after the {count:,} elements of its shape")
    return elements


def element_bytes(datatype: str) -> int:
    """Return the size of an element in raw contents; of BYTES, the least one."""
    return _LENGTH.size if datatype == BYTES else np.dtype(NUMPY[datatype]).itemsize


def encode(
    parts: Iterable[Any], rank: int, datatype: str, check_size: Callable[[int], None] = lambda _: None
) -> tuple[tuple[int, ...], Buffer]:
    """Return shape and raw contents of nested sequences; strings become UTF-8, and FILL pads ragged sequences.

    Args:
        parts: the elements, or sequences of them; read one after the other.
        rank: number of dimensions.
        datatype: of the tensor.
        check_size: raises an error if so many bytes are too many. Called with the bytes of the contents, before they are made.
    """
    values, content = [], 0
    for part in parts:
        values.append(part)
        if datatype == BYTES:
            content += _content(part, rank - 1)
            check_size(content)
    shape = _shape(values, rank)
    check_size(content + prod(shape) * element_bytes(datatype))
    if datatype == BYTES:
        packed = bytearray()
        _pack(values, shape, packed)
        return shape, packed
    array = np.full(shape, FILL[datatype], NUMPY[datatype])
    _copy(values, array)
    return shape, array.ravel().view(np.uint8).data


def _check_names(given: Sequence[str], specs: Sequence[InputSpec]) -> None:
    known = ", ".join(f"{spec.name} (optional)" if spec.optional else spec.name for spec in specs)
    names = {spec.name for spec in specs}
    for index, name in enumerate(given):
        if name not in names:
            raise InvalidInputError(f"inputs[{index}].name", f"there is no input {name!r}; there are: {known}")
        if name in given[:index]:
            raise InvalidInputError(f"inputs[{index}].name", f"duplicate name {name!r}")
    if missing := [spec.name for spec in specs if not spec.optional and spec.name not in given]:
        raise InvalidInputError("inputs", f"missing input {missing[0]}; there are: {known}")


def raw_contents(request: pb.ModelInferRequest) -> Sequence[bytes | None]:
    """Return the raw contents of each input; None where the tensor has its own contents.

    Raises:
        InvalidInputError: contents are given twice, or not for each input.
    """
    raw, inputs = request.raw_input_contents, request.inputs
    if not raw:
        return [None] * len(inputs)
    if own := next((tensor.name for tensor in inputs if tensor.contents.ListFields()), ""):
        raise InvalidInputError(own, "it has contents twice: send either raw_input_contents or contents")
    if len(raw) != len(inputs):
        raise InvalidInputError("raw_input_contents", f"{len(raw):,} contents for {len(inputs):,} inputs, send one for each")
    return raw


def check_parameters(tensor: InferInputTensor) -> None:
    """Check that an input has no parameters. Raises InvalidInputError: it has, for shared memory for instance."""
    if unknown := next(iter(tensor.parameters), None):
        problem = f"it has a parameter {unknown!r}, inputs take none; shared memory is not supported"
        raise InvalidInputError(tensor.name, problem)


def check_outputs(outputs: Iterable[InferOutput], known: Container[str], rule: str) -> None:
    """Check that outputs are named once and have known parameters alone. Raises InvalidInputError: one is not; tells `rule`."""
    seen = set[str]()
    for index, output in enumerate(outputs):
        if output.name in seen:
            raise InvalidInputError(f"outputs[{index}].name", f"duplicate name {output.name!r:.60}")
        seen.add(output.name)
        if unknown := next((name for name in output.parameters if name not in known), None):
            raise InvalidInputError(f"outputs[{index}].parameters", f"there is {unknown!r}, {rule}")


def elements_of(tensor: InferInputTensor, raw: bytes | None) -> Sequence[bytes]:
    """Unpack a BYTES tensor. Raises InvalidInputError: it has another datatype, or its shape and contents do not fit."""
    name = tensor.name
    if tensor.datatype != BYTES:
        raise InvalidInputError(name, f"its datatype is {tensor.datatype!r}, must be {BYTES!r}")
    check_parameters(tensor)
    count = count_of(name, tensor.shape)
    return list(own_values(tensor, count)) if raw is None else unpack(name, raw, count)


def texts_of(tensor: InferInputTensor, raw: bytes | None) -> list[str]:
    """Decode a BYTES tensor of any shape. Raises InvalidInputError: its shape and contents do not fit, or are not UTF-8."""
    count = _check_count(tensor.name, shape_of(tensor))
    elements = own_values(tensor, count) if raw is None else unpack(tensor.name, raw, count)
    return [_decode(f"{tensor.name}[{index}]", element) for index, element in enumerate(elements)]


def own_values(tensor: InferInputTensor, count: int) -> Sequence[Any]:
    """Return the elements of a tensor that is not raw. Raises InvalidInputError: they are of another type, or not `count`."""
    field = CONTENTS.get(tensor.datatype, "")
    if other := next((one.name for one, _ in tensor.contents.ListFields() if one.name != field), ""):
        wanted = field or "raw_input_contents"
        raise InvalidInputError(tensor.name, f"it has {other}, a {tensor.datatype} tensor has {wanted}")
    values = getattr(tensor.contents, field) if field else ()
    if len(values) != count:
        raise InvalidInputError(tensor.name, f"its contents have {len(values):,} elements, its shape has {count:,}")
    return values


def _check_count(name: str, shape: Sequence[int]) -> int:
    if not 1 <= (count := prod(shape)) <= MAX_ELEMENTS:
        raise InvalidInputError(name, f"shape {_format(shape)} has {count:,} elements, must have 1 to {MAX_ELEMENTS:,}")
    return count


def _decode(field: str, element: bytes) -> str:
    try:
        return element.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(field, f"not UTF-8: {error.reason} at byte {error.start:,}") from error


def _shape(values: Sequence[Any] | NDArray[Any], rank: int) -> tuple[int, ...]:
    """Return the smallest shape that holds all values."""
    if rank == 1 or not len(values):
        return (len(values), *(0,) * (rank - 1))
    return (len(values), *map(max, zip(*(_shape(part, rank - 1) for part in values), strict=True)))


def _content(values: Any, rank: int) -> int:
    """Return the bytes of all elements of a part."""
    if rank:
        return sum(_content(part, rank - 1) for part in values)
    return len(values) if isinstance(values, bytes) or values.isascii() else len(values.encode())


def _pack(values: Sequence[Any], shape: Sequence[int], packed: bytearray) -> None:
    """Append the elements of a BYTES tensor, and empty ones up to its shape."""
    for value in values:
        if len(shape) > 1:
            _pack(value, shape[1:], packed)
        else:
            element = value.encode() if isinstance(value, str) else value
            packed += _LENGTH.pack(len(element))
            packed += element
    packed += bytes((shape[0] - len(values)) * prod(shape[1:]) * _LENGTH.size)


def _copy(values: Sequence[Any] | NDArray[Any], array: NDArray[Any]) -> None:
    if array.ndim == 1:
        array[: len(values)] = values
        return
    for part, row in zip(values, array, strict=False):  # the array may have more rows
        _copy(part, row)


def _format(shape: Sequence[int]) -> str:
    sizes = ", ".join(map(str, shape[:5]))
    return f"[{sizes}{', ...' if len(shape) > 5 else ''}]"
