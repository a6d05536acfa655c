"""Check for graphs that can be captured on a GPU."""

from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper

from triptych_export.graphs.operators import DOMAIN

from ....fixtures.cuda_kernels import HOST_INPUTS, KERNELS, unfit_nodes
from ....fixtures.onnx_models import onnx_model, values

HALF, INT64, DOUBLE = TensorProto.FLOAT16, TensorProto.INT64, TensorProto.DOUBLE


def graph(*nodes: onnx.NodeProto, kind: int = HALF, **constants: Any) -> ModelProto:
    """Make a graph with inputs `x` `[B, 4]` and `n` `[1]` int64 and output `y`."""
    inputs = [*values({"x": ["B", 4]}, kind), *values({"n": [1]}, INT64)]
    return onnx_model(nodes, inputs, values({"y": None}, TensorProto.UNDEFINED), constants, opset=24)


def node(kind: str, *inputs: str, output: str = "y", domain: str = "", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, [output], domain=domain, **attributes)


def test_a_graph_with_kernels_for_all_nodes_passes() -> None:
    weight = np.zeros((4, 4), np.float16)
    assert unfit_nodes(graph(node("MatMul", "x", "w", output="p"), node("Relu", "p"), w=weight)) == []


def test_numbers_from_shapes_are_rejected() -> None:
    nodes = [node("Shape", "x", output="s"), node("Expand", "w", "s")]
    assert unfit_nodes(graph(*nodes, w=np.zeros((1, 4), np.float16))) == [
        "Shape s: there is no kernel for it",
        "Expand y: input 1 is read by the host and computed by the graph",
    ]


def test_host_inputs_must_be_constant() -> None:
    assert unfit_nodes(graph(node("Reshape", "x", "to"), to=np.array([-1, 2, 2]))) == []
    assert unfit_nodes(graph(node("Reshape", "x", "n"))) == ["Reshape y: input 1 is read by the host and computed by the graph"]
    best = helper.make_node("TopK", ["x", "n"], ["y", "places"])
    assert unfit_nodes(graph(best)) == ["TopK y: input 1 is read by the host and computed by the graph"]
    assert unfit_nodes(graph(best), inputs=("n",)) == []


def test_types_without_a_kernel_are_rejected() -> None:
    assert unfit_nodes(graph(node("Relu", "x"), kind=DOUBLE)) == ["Relu y: no kernel takes DOUBLE as input 0"]
    assert unfit_nodes(graph(node("ArgMax", "n"))) == ["ArgMax y: no kernel takes INT64 as input 0"]


def test_types_are_inferred_after_fused_operators() -> None:
    fused = node("MultiHeadAttention", "x", "x", "x", output="c", domain=DOMAIN, num_heads=1)
    assert unfit_nodes(graph(fused, node("ArgMax", "c"))) == []
    assert unfit_nodes(graph(fused, node("And", "c", "c"))) == [
        "And y: no kernel takes FLOAT16 as input 0",
        "And y: no kernel takes FLOAT16 as input 1",
    ]


def test_the_table_lists_existing_operators() -> None:
    for domain, name in KERNELS:
        assert domain == DOMAIN or name == "SimplifiedLayerNormalization" or onnx.defs.has(name, 24, domain)
    assert HOST_INPUTS.keys() <= KERNELS.keys()
