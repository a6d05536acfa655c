"""Responses: the outputs, as references are written, and the statistics of a model."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from triptych.inference import open_inference_pb2 as pb
from triptych_bench.oip.datatypes import BOOL, BYTES, decode
from triptych_bench.oip.model import TOKEN_COUNT, TaskTensors

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

STAGES = {"queue": "queue", "preprocess": "compute_input", "compute": "compute_infer", "postprocess": "compute_output"}


@dataclass(frozen=True)
class OutputTensor:
    """A tensor of a response."""

    datatype: str
    shape: tuple[int, ...]  # at least one dimension
    elements: Sequence[Any]  # row-major

    def rows(self) -> list[Sequence[Any]]:
        """Return the elements of each input."""
        count = self.shape[0]
        size = len(self.elements) // count if count else 0
        return [self.elements[index * size : (index + 1) * size] for index in range(count)]


def output(message: pb.ModelInferResponse, name: str) -> OutputTensor | None:
    """Return an output by name, or None if the response has none. Raises ElementError: the contents do not fit the datatype."""
    for index, one in enumerate(message.outputs):
        if one.name == name:
            return _output(message, index)
    return None


def tokens(message: pb.ModelInferResponse) -> int:
    """Count the tokens of the best output of each input, if the response has the counts."""
    found = output(message, TOKEN_COUNT)
    return sum(row[0] for row in found.rows() if len(row)) if found else 0


def read(messages: Sequence[pb.ModelInferResponse], task: TaskTensors | None, batches: bool) -> list[str]:
    """Return the best output for each input.

    Args:
        messages: All responses to one request; pieces of text are joined.
        task: For models of Triptych.
        batches: Tensors have a first dimension for several inputs; otherwise, a whole tensor is the output for one.
    """
    if task:
        found = next((one for message in reversed(messages) if (one := output(message, task.result))), None)
        return [_task_output(task.result, row) for row in found.rows()] if found else []
    best = [one for message in messages if (one := _first(message))]
    if not best:
        return []
    if len(best) > 1 and best[0].datatype == BYTES:
        return ["".join(_text(element) for one in best for element in one.elements)]
    rows = best[-1].rows() if batches else [best[-1].elements]
    return [_best(best[-1].datatype, row) for row in rows]


def _task_output(name: str, row: Sequence[Any]) -> str:
    if name == "embedding":
        return str(len(row))
    if name == "entities":
        return " ".join(f"{entity['label']}:{entity['text']}" for entity in json.loads(row[0]))
    return _text(row[0]) if row else ""


def _first(message: pb.ModelInferResponse) -> OutputTensor | None:
    """Return the first output with texts, or else the first output."""
    texts = [index for index, one in enumerate(message.outputs) if one.datatype == BYTES]
    return _output(message, texts[0] if texts else 0) if message.outputs else None


def _best(datatype: str, row: Sequence[Any]) -> str:
    """Return a text, or the index of the largest number: the class of a classifier."""
    if not row:
        return ""
    if datatype == BYTES:
        return _text(row[0])
    return str(max(range(len(row)), key=row.__getitem__)) if len(row) > 1 else f"{row[0]:g}"


def _text(element: bytes) -> str:
    return element.decode("utf-8", errors="replace")


def _output(message: pb.ModelInferResponse, index: int) -> OutputTensor:
    one = message.outputs[index]
    if index < len(message.raw_output_contents):
        elements: Sequence[Any] = decode(one.datatype, message.raw_output_contents[index])
    else:
        elements = list(getattr(one.contents, CONTENTS.get(one.datatype, "fp32_contents")))
    shape = tuple(one.shape) or (1,)
    return OutputTensor(one.datatype, shape if math.prod(shape) == len(elements) else (1,), elements)


def counters(models: Iterable[pb.ModelStatistics]) -> dict[str, float]:
    """Add up ModelStatistics, of Triton's statistics extension, over all versions; times are in seconds."""
    stats = [model.inference_stats for model in models]
    return {
        "requests": float(sum(one.success.count for one in stats)),
        "failures": float(sum(one.fail.count for one in stats)),
        "total": math.fsum(one.success.ns for one in stats) / 1e9,
        "cached": float(sum(one.cache_hit.count for one in stats)),
        **{name: math.fsum(getattr(one, field).ns for one in stats) / 1e9 for name, field in STAGES.items()},
    }
