"""What came back, as references are written."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from triptych.inference import open_inference_pb2 as pb
from triptych_bench.oip.datatypes import BOOL, BYTES, decode
from triptych_bench.oip.own import TOKEN_COUNT, Tensors

CONTENTS = {
    BYTES: "bytes_contents",
    BOOL: "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "INT64": "int64_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}


@dataclass(frozen=True)
class Output:
    """A tensor of an answer."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    elements: Sequence[Any]  # row-major

    def rows(self) -> list[Sequence[Any]]:
        """The elements of each input; all of them where it has no batch."""
        count = self.shape[0] if len(self.shape) else 1
        size = len(self.elements) // count if count else 0
        return [self.elements[index * size : (index + 1) * size] for index in range(count)]


def output(message: pb.ModelInferResponse, name: str) -> Output | None:
    """By its name; None where the answer lacks it.

    Raises:
        ElementError: its contents are not what its datatype says.
    """
    for index, one in enumerate(message.outputs):
        if one.name == name:
            return _output(message, index)
    return None


def tokens(message: pb.ModelInferResponse) -> int:
    """Of each input's best answer, where they are counted."""
    found = output(message, TOKEN_COUNT)
    return sum(row[0] for row in found.rows() if len(row)) if found else 0


def read(messages: Sequence[pb.ModelInferResponse], own: Tensors | None, batches: bool = True) -> list[str]:
    """For each input its best answer.

    Args:
        messages: all responses of one request; pieces of text are put together.
        own: of a model of Triptych's.
        batches: tensors begin with a dimension for several inputs; without one all of a tensor is the answer to one.
    """
    if own:
        found = next((one for message in reversed(messages) if (one := output(message, own.answer))), None)
        return [_own(own.answer, row) for row in found.rows()] if found else []
    best = [one for message in messages if (one := _first(message))]
    if not best:
        return []
    if len(best) > 1 and best[0].datatype == BYTES:
        return ["".join(_text(element) for one in best for element in one.elements)]
    rows = best[-1].rows() if batches else [best[-1].elements]
    return [_best(best[-1].datatype, row) for row in rows]


def _own(name: str, row: Sequence[Any]) -> str:
    if name == "embedding":
        return str(len(row))
    if name == "entities":
        return " ".join(f"{entity['label']}:{entity['text']}" for entity in json.loads(row[0]))
    return _text(row[0]) if row else ""


def _first(message: pb.ModelInferResponse) -> Output | None:
    """The first output of texts, else the first one."""
    texts = [index for index, one in enumerate(message.outputs) if one.datatype == BYTES]
    return _output(message, texts[0] if texts else 0) if message.outputs else None


def _best(datatype: str, row: Sequence[Any]) -> str:
    """A text, or the index of the largest number: the class of a classifier."""
    if not row:
        return ""
    if datatype == BYTES:
        return _text(row[0])
    return str(max(range(len(row)), key=row.__getitem__)) if len(row) > 1 else f"{row[0]:g}"


def _text(element: bytes) -> str:
    return element.decode("utf-8", errors="replace")


def _output(message: pb.ModelInferResponse, index: int) -> Output:
    one = message.outputs[index]
    if index < len(message.raw_output_contents):
        elements: Sequence[Any] = decode(one.datatype, message.raw_output_contents[index])
    else:
        elements = list(getattr(one.contents, CONTENTS.get(one.datatype, "fp32_contents")))
    shape = tuple(one.shape) or (1,)
    return Output(one.name, one.datatype, shape if math.prod(shape) == len(elements) else (1,), elements)
