"""A request's input tensors: checked, and their elements taken out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.errors import InvalidInputError
from triptych_serving.services.oip.tensors import BYTES, TensorInput, count_of, unpack

InputTensor = pb.ModelInferRequest.InferInputTensor


@dataclass(frozen=True)
class Inputs:
    """As many elements in each tensor."""

    count: int
    is_column: bool  # shape [n, 1]; answers of one value each come back in the same shape
    elements: Mapping[str, Sequence[bytes]]

    def texts(self, name: str) -> list[str]:
        """A tensor's elements as text; none where it is left out.

        Raises:
            InvalidInputError: one is not UTF-8.
        """
        return [_text(f"{name}[{index}]", element) for index, element in enumerate(self.elements.get(name, ()))]


def inputs_from(request: pb.ModelInferRequest, known: Sequence[TensorInput]) -> Inputs:
    """What a request's tensors hold.

    Args:
        request: as it came.
        known: the tensors that the task takes.

    Raises:
        InvalidInputError: a tensor is missing, unknown, of another datatype or shape, or its contents do not fit; names it.
    """
    _check_names([tensor.name for tensor in request.inputs], known)
    raw = _raw_contents(request)
    shapes = {tensor.name: tuple(tensor.shape) for tensor in request.inputs}
    elements = {tensor.name: _elements(tensor, contents) for tensor, contents in zip(request.inputs, raw, strict=True)}
    first = known[0].name
    count = len(elements[first])
    for name, own in elements.items():
        if len(own) != count:
            raise InvalidInputError(name, f"it has {len(own):,} elements, {first} has {count:,}")
    return Inputs(count, len(shapes[first]) == 2, elements)


def _check_names(given: Sequence[str], known: Sequence[TensorInput]) -> None:
    there = ", ".join(f"{tensor.name} (optional)" if tensor.optional else tensor.name for tensor in known)
    names = {tensor.name for tensor in known}
    for index, name in enumerate(given):
        if name not in names:
            raise InvalidInputError(f"inputs[{index}].name", f"there is no input {name!r}; there are: {there}")
        if name in given[:index]:
            raise InvalidInputError(f"inputs[{index}].name", f"{name!r} is there twice")
    if missing := [tensor.name for tensor in known if not tensor.optional and tensor.name not in given]:
        raise InvalidInputError("inputs", f"there is no {missing[0]}, which is needed; there are: {there}")


def _raw_contents(request: pb.ModelInferRequest) -> Sequence[bytes | None]:
    """Of each input; None where the tensor has its contents itself."""
    raw, inputs = request.raw_input_contents, request.inputs
    if not raw:
        return [None] * len(inputs)
    if own := next((tensor.name for tensor in inputs if tensor.contents.ListFields()), ""):
        raise InvalidInputError(own, "its contents are there twice: send raw_input_contents, or contents, not both")
    if len(raw) != len(inputs):
        raise InvalidInputError("raw_input_contents", f"there are {len(raw):,} for {len(inputs):,} inputs, send one for each")
    return raw


def _elements(tensor: InputTensor, raw: bytes | None) -> Sequence[bytes]:
    name = tensor.name
    if tensor.datatype != BYTES:
        raise InvalidInputError(name, f"its datatype is {tensor.datatype!r}, it must be {BYTES!r}")
    if unknown := next(iter(tensor.parameters), None):
        raise InvalidInputError(name, f"it has a parameter {unknown!r}, inputs take none; shared memory is not offered")
    count = count_of(name, tensor.shape)
    return _own_elements(tensor, count) if raw is None else unpack(name, raw, count)


def _own_elements(tensor: InputTensor, count: int) -> Sequence[bytes]:
    if other := next((field.name for field, _ in tensor.contents.ListFields() if field.name != "bytes_contents"), ""):
        raise InvalidInputError(tensor.name, f"it has {other}, a {BYTES} tensor has bytes_contents")
    elements = tensor.contents.bytes_contents
    if len(elements) != count:
        raise InvalidInputError(tensor.name, f"its contents have {len(elements):,} elements, its shape has {count:,}")
    return list(elements)


def _text(field: str, element: bytes) -> str:
    try:
        return element.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(field, f"it is not UTF-8: {error.reason} at byte {error.start:,}") from error
