"""Requests to models of plain tensors: any datatype and shape, as the model declares them.

Where the manifest says how images become an input, it may be BYTES, a file for each row. Where it names the labels of an
output, the output's parameter `classification`, as in Triton's extension, asks for so many labels as "score:index:label".
"""

import asyncio
from collections.abc import Container, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.bundle.manifest.tensors import BYTES, DATATYPES, NUMPY
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.tensors.tensor_model import TensorModel
from triptych_serving.rpc.call_context import GrpcContext, ModelUseScope
from triptych_serving.rpc.engine_call import Arrival, EngineCall
from triptych_serving.rpc.limits import MessageLimit
from triptych_serving.runtime.session import Array
from triptych_serving.services.oip.tensors import (
    Buffer,
    check_outputs,
    check_parameters,
    elements_of,
    encode,
    own_values,
    raw_contents,
    shape_of,
    texts_of,
)

CLASSES = "classification"
INLINE_BYTES = 1 << 20  # of values that are converted in the event loop
VALUES_AT_ONCE = 1 << 16  # converted without letting other threads run

InferInputTensor = pb.ModelInferRequest.InferInputTensor


async def infer_tensors(
    model: TensorModel, request: pb.ModelInferRequest, context: GrpcContext, limit: MessageLimit
) -> tuple[pb.ModelInferResponse, list[Buffer]]:
    """Return the response to a request without contents, and the raw contents of its tensors.

    Raises:
        InvalidInputError: a tensor is unknown, missing or malformed; names it.
        TooLargeError: the response would be above the limit.
    """
    arrival = Arrival.now(context)
    check_outputs(request.outputs, (CLASSES,), f"there may be {CLASSES!r}; shared memory is not supported")
    own = 0 if request.raw_input_contents else request.ByteSize()
    unpack = partial(inputs_from, request, model.text_inputs)
    inputs, files = await asyncio.to_thread(unpack) if own > INLINE_BYTES else unpack()
    with ModelUseScope(model) as use:
        for name, images in files.items():
            inputs[name] = await asyncio.to_thread(model.read_images, name, images)
        work = model.prepare(inputs, [output.name for output in request.outputs])
        await EngineCall.run(model.engine, work, arrival, use)
    response, contents = response_to(request, model, next(work.read()))
    limit.check_response(sum(map(len, contents)))
    return response, contents


def inputs_from(request: pb.ModelInferRequest, texts: Container[str]) -> tuple[dict[str, Array], dict[str, Sequence[bytes]]]:
    """Unpack the input tensors of a request, and files for them; large ones are views of its contents.

    Args:
        texts: names of the inputs of texts; BYTES for others are files.

    Raises:
        InvalidInputError: a tensor is malformed, or there are two of a name; names it.
    """
    inputs: dict[str, Array] = {}
    files: dict[str, Sequence[bytes]] = {}
    for tensor, raw in zip(request.inputs, raw_contents(request), strict=True):
        if tensor.name in inputs or tensor.name in files:
            raise InvalidInputError(tensor.name, "there are two inputs of this name")
        if tensor.datatype == BYTES and tensor.name not in texts:
            files[tensor.name] = elements_of(tensor, raw)
        else:
            inputs[tensor.name] = _array(tensor, raw)
    return inputs, files


def response_to(
    request: pb.ModelInferRequest, model: TensorModel, results: Mapping[str, Array]
) -> tuple[pb.ModelInferResponse, list[Buffer]]:
    """Encode the outputs: a response without contents, and the raw contents of its tensors.

    Raises:
        InvalidInputError: labels are requested of an output that has none.
    """
    classes = {one.name: one.parameters[CLASSES].int64_param for one in request.outputs if CLASSES in one.parameters}
    response = pb.ModelInferResponse(model_name=model.name, model_version=str(model.version), id=request.id)
    contents: list[Buffer] = []
    for name, array in results.items():
        if name in classes:
            ranked = model.rank(name, array, classes[name])
            shape, packed = encode([[f"{one.score}:{one.index}:{one.label}" for one in row] for row in ranked], 2, BYTES)
            response.outputs.add(name=name, datatype=BYTES, shape=shape)
            contents.append(packed)
            continue
        response.outputs.add(name=name, datatype=DATATYPES[array.dtype], shape=array.shape)
        flat = np.ascontiguousarray(array).reshape(-1)
        contents.append(flat.view(np.uint8).data if array.dtype != object else encode(flat, 1, BYTES)[1])
    return response, contents


def _array(tensor: InferInputTensor, raw: bytes | None) -> Array:
    name, shape = tensor.name, shape_of(tensor)
    check_parameters(tensor)
    if tensor.datatype not in NUMPY:
        raise InvalidInputError(name, f"its datatype is {tensor.datatype!r:.40}, must be one of {', '.join(NUMPY)}")
    kind, count = np.dtype(NUMPY[tensor.datatype]), prod(shape)
    values: Any
    if tensor.datatype == BYTES:
        values = texts_of(tensor, raw)
    elif raw is None:
        values = own_values(tensor, count)
    elif len(raw) != count * kind.itemsize:
        raise InvalidInputError(name, f"its raw contents have {len(raw):,} bytes, its shape needs {count * kind.itemsize:,}")
    else:
        values = np.frombuffer(raw, kind)
    try:
        return (values if isinstance(values, np.ndarray) else _converted(values, kind)).reshape(shape)
    except (OverflowError, ValueError) as error:  # more than 8 or 16 bits, whose field has 32; a shape that numpy cannot have
        raise InvalidInputError(name, f"it is no {tensor.datatype} tensor: {error}") from error


def _converted(values: Sequence[Any], kind: np.dtype[Any]) -> Array:
    """Make an array of values, a few at a time: as objects of Python they take ten times as much memory."""
    array = np.empty(len(values), kind)
    for start in range(0, len(values), VALUES_AT_ONCE):
        array[start : start + VALUES_AT_ONCE] = values[start : start + VALUES_AT_ONCE]
    return array
