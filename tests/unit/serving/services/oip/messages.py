"""Builders of Open Inference Protocol requests."""

from collections.abc import Sequence
from typing import Any

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.bundle.manifest.tensors import BYTES
from triptych_serving.services.oip.tensors import encode


def pack(elements: Sequence[bytes]) -> bytes:
    """Return the raw contents of a BYTES tensor."""
    return bytes(encode(elements, 1, BYTES)[1])


def parameter(value: object) -> pb.InferParameter:
    """Make a parameter as tritonclient does; large integers are unsigned."""
    if isinstance(value, bool):
        return pb.InferParameter(bool_param=value)
    if isinstance(value, int):
        return pb.InferParameter(int64_param=value) if value < 2**63 else pb.InferParameter(uint64_param=value)
    if isinstance(value, float):
        return pb.InferParameter(double_param=value)
    return pb.InferParameter(string_param=str(value))


def tensor(name: str, shape: Sequence[int], elements: Sequence[bytes] | None = None, datatype: str = "BYTES") -> Any:
    """Make an input tensor; `elements` are its own contents."""
    made = pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape)
    if elements is not None:
        made.contents.bytes_contents.extend(elements)
    return made


def request(*inputs: Any, raw: Sequence[Sequence[bytes] | bytes] = (), **parameters: object) -> pb.ModelInferRequest:
    """Make a request; `raw` are lists of elements, or packed bytes."""
    return pb.ModelInferRequest(
        model_name="toy",
        inputs=inputs,
        raw_input_contents=[part if isinstance(part, bytes) else pack(part) for part in raw],
        parameters={name: parameter(value) for name, value in parameters.items()},
    )
