"""ONNX graphs of a few nodes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

Shape = Sequence[int | str]
TYPES = {np.dtype(np.float16): TensorProto.FLOAT16, np.dtype(np.float32): TensorProto.FLOAT}
TYPES |= {np.dtype(np.int32): TensorProto.INT32, np.dtype(np.int64): TensorProto.INT64}
OPSETS = [helper.make_opsetid("", 24), helper.make_opsetid("com.microsoft", 1)]


def save(
    folder: Path,
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Shape],
    outputs: Mapping[str, Shape],
    constants: Mapping[str, NDArray[Any]] | None = None,
    types: Mapping[str, Any] | None = None,
) -> Path:
    """Write a graph; tensors not in `types` are float16."""
    kinds = {name: TYPES[np.dtype(kind)] for name, kind in (types or {}).items()}

    def values(shapes: Mapping[str, Shape]) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT16), shape) for name, shape in shapes.items()
        ]

    weights = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "graph", values(inputs), values(outputs), weights)
    path = folder / "graph.onnx"
    onnx.save(helper.make_model(graph, opset_imports=OPSETS, ir_version=10), path)
    return path


def multiplication(folder: Path) -> Path:
    """Write a product of `left [n, 64]` and `right [64, 32]`."""
    node = helper.make_node("MatMul", ["left", "right"], ["product"])
    return save(folder, [node], {"left": ["n", 64], "right": [64, 32]}, {"product": ["n", 32]})
