"""Models of plain tensors, through the Open Inference Protocol.

Inputs are buffers (PEP 3118), such as numpy arrays, arrays of texts, or lists of texts or files.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triptych.inference import open_inference_pb2 as pb
from triptych_client.tasks import SimpleCall

# Kind of number by the format of a buffer's elements, and the letter that numpy's type strings have for it.
KINDS: Mapping[str, str] = {
    "?": "BOOL",
    **dict.fromkeys("bhilq", "INT"),
    **dict.fromkeys("BHILQ", "UINT"),
    **dict.fromkeys("efd", "FP"),
}
LENGTH = struct.Struct("<I")  # of an element of BYTES, before it
LETTERS: Mapping[str, str] = {"INT": "i", "UINT": "u", "FP": "f"}


@dataclass(frozen=True, slots=True)
class Tensor:
    """An output; `numpy.asarray(tensor)` is an array of it, without a copy, unless it is of BYTES."""

    datatype: str
    """Of the Open Inference Protocol, such as "FP32"."""
    shape: tuple[int, ...]
    data: bytes
    """The values, little-endian, in C order."""

    @property
    def strings(self) -> tuple[str, ...]:
        """The values of a tensor of BYTES, such as labels: "score:index:label"."""
        found, place = list[str](), 0
        while place < len(self.data):
            [length] = LENGTH.unpack_from(self.data, place)
            place += LENGTH.size + length
            found.append(self.data[place - length : place].decode())
        return tuple(found)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self.datatype == "BYTES":
            raise TypeError("a tensor of BYTES has no numbers for an array; its values are in `strings`")
        kind = self.datatype.rstrip("0123456789")
        bits = self.datatype.removeprefix(kind)
        code = f"<{LETTERS[kind]}{int(bits) // 8}" if bits else "|b1"
        return {"shape": self.shape, "typestr": code, "data": self.data, "version": 3}


def infer_request(
    model: str, version: str, inputs: Mapping[str, Any], outputs: Sequence[str] | Mapping[str, int]
) -> dict[str, Any]:
    """Make the members of a request. Raises TypeError: an input has neither numbers nor texts, and is no list of bytes."""
    tensors, contents = [], []
    for name, values in inputs.items():
        is_array = getattr(getattr(values, "dtype", None), "kind", "") in ("O", "S", "U")  # of numpy, which is not needed here
        elements = values.ravel().tolist() if is_array else values
        if isinstance(elements, list | tuple) and all(isinstance(one, bytes | str) for one in elements):
            shape = values.shape if is_array else (len(values),)
            tensors.append(pb.ModelInferRequest.InferInputTensor(name=name, datatype="BYTES", shape=shape))
            contents.append(b"".join(map(_element, elements)))
            continue
        try:
            view = memoryview(values)
        except TypeError:
            kind = type(values).__name__
            raise TypeError(f"input {name!r} is of type {kind}, expected an array, or a list of texts or bytes") from None
        except ValueError as error:  # numpy's, of dates and of bfloat16
            raise TypeError(f"input {name!r}: {error}; expected numbers, booleans or texts") from None
        kind = KINDS.get(view.format.lstrip("@=<"), "")
        if not kind:
            raise TypeError(f"input {name!r}: elements of the format {view.format!r}, expected numbers, booleans or texts")
        datatype = kind if kind == "BOOL" else f"{kind}{8 * view.itemsize}"
        tensors.append(pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=view.shape))
        contents.append(view.tobytes())
    wanted = [pb.ModelInferRequest.InferRequestedOutputTensor(name=name) for name in outputs]
    counts = outputs if isinstance(outputs, Mapping) else {}
    for one in wanted:
        if counts.get(one.name):
            one.parameters["classification"].int64_param = counts[one.name]
    return {"model_name": model, "model_version": version, "inputs": tensors, "raw_input_contents": contents, "outputs": wanted}


def _element(value: str | bytes) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return LENGTH.pack(len(content)) + content


def _outputs(response: pb.ModelInferResponse) -> dict[str, Tensor]:
    parts = zip(response.outputs, response.raw_output_contents, strict=True)
    return {one.name: Tensor(one.datatype, tuple(one.shape), raw) for one, raw in parts}


INFER = SimpleCall("/inference.GRPCInferenceService/ModelInfer", pb.ModelInferRequest, pb.ModelInferResponse, _outputs, "infer")
