"""Marks on the inputs of projections: the scale with which int8 quantizes them.

A marked projection is traced with the operator `QuantizedInput` before it, which `quantization.dynamic` replaces: no runtime
has it. Inputs without a mark get a scale for each row when they are multiplied. Only the models that `quantization.calibration`
makes for the tracing of int8 graphs are marked.
"""

from dataclasses import dataclass

from onnx import NodeProto
from torch import Tensor, nn

from triptych_export.graphs.lazy_graph import Graph
from triptych_export.graphs.operators import mark_quantized
from triptych_export.onnx_files.checks import replace_fields

DOMAIN, OPERATOR = "triptych", "QuantizedInput"
ATTRIBUTE = "input_scale"


@dataclass(frozen=True)
class InputScale:
    """Conversion of a projection's input to unsigned 8-bit integers."""

    scale: float  # size of one step
    zero_point: int  # the integer that stands for 0


def set_input_scale(linear: nn.Linear, scale: InputScale) -> None:
    """Mark a projection's input; the projection can then be traced, but not run."""
    setattr(linear, ATTRIBUTE, scale)
    linear.register_forward_pre_hook(_mark_first)


def copy_input_scale(linear: nn.Linear, to: nn.Linear) -> None:
    """Mark `to` as `linear` is."""
    if (scale := getattr(linear, ATTRIBUTE, None)) is not None:
        set_input_scale(to, scale)


def mark_input(x: Tensor, linear: nn.Linear) -> Tensor:
    """Mark `x` as the input of a projection that is not called as a module."""
    scale: InputScale | None = getattr(linear, ATTRIBUTE, None)
    return x if scale is None else mark_quantized(x, f"{DOMAIN}::{OPERATOR}", scale.scale, scale.zero_point)


def is_mark(node: NodeProto) -> bool:
    """Tell whether a node is a mark."""
    return node.domain == DOMAIN and node.op_type == OPERATOR


def scale_of(mark: NodeProto) -> InputScale:
    """Return the scale of a mark."""
    values = {attribute.name: attribute for attribute in mark.attribute}
    return InputScale(values["scale"].f, values["zero_point"].i)


def drop_marks(graph: Graph) -> None:
    """Remove all marks of a graph in place."""
    body = graph.model.graph
    sources: dict[str, str] = {}
    for node in body.node:
        node.input[:] = [sources.get(name, name) for name in node.input]
        if is_mark(node):
            sources[node.output[0]] = node.input[0]
    replace_fields(body, node=[node for node in body.node if not is_mark(node)])
    replace_fields(graph.model, opset_import=[opset for opset in graph.model.opset_import if opset.domain != DOMAIN])


def _mark_first(linear: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    assert isinstance(linear, nn.Linear)
    return mark_input(arguments[0], linear), *arguments[1:]
