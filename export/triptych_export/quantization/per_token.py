"""Products of int8 weights with inputs that get a scale for each row when they are multiplied (per-token quantization).

Graphs contain one node for each, of an operator that the model itself defines as a function. ONNX Runtime replaces the node by
the function's body, unless native kernels (`triptych_serving/runtime/native`) have registered an operator of that name.
"""

import numpy as np
from onnx import FunctionProto, ModelProto, helper, numpy_helper

from triptych_export.graphs.operators import DOMAIN

OWN_DOMAIN = "ai.triptych"
STEP = 1 / 127  # scale of a row that was divided by its largest magnitude
SMALLEST = 1e-20  # largest magnitude from which on a row is told from zeros
CENTRE = 128  # the byte that stands for 0
OPSET = 18  # of the body


def per_token_product(with_bias: bool) -> FunctionProto:
    """Return the operator `x [..., K], weights [K, N] int8, scales [N] (, bias [N]) -> [..., N]`."""
    values = {"axis": np.array([-1]), "least": np.float32(SMALLEST), "step": np.float32(STEP), "zero": np.uint8(CENTRE)}
    scaled = "scaled" if with_bias else "result"
    nodes = [
        *(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(v))) for name, v in values.items()),
        helper.make_node("Abs", ["x"], ["size"]),
        helper.make_node("ReduceMax", ["size", "axis"], ["found"], keepdims=1),
        helper.make_node("Max", ["found", "least"], ["largest"]),
        helper.make_node("Div", ["x", "largest"], ["shares"]),
        helper.make_node("QuantizeLinear", ["shares", "step", "zero"], ["bytes"]),
        helper.make_node("MatMulIntegerToFloat", ["bytes", "weights", "step", "scales", "zero"], ["product"], domain=DOMAIN),
        helper.make_node("Mul", ["product", "largest"], [scaled]),
        *([helper.make_node("Add", ["scaled", "bias"], ["result"])] if with_bias else []),
    ]
    name, inputs = ("PerTokenGemm", ["bias"]) if with_bias else ("PerTokenMatMul", [])
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_function(OWN_DOMAIN, name, ["x", "weights", "scales", *inputs], ["result"], nodes, opsets)


def add_function(model: ModelProto, function: FunctionProto) -> None:
    """Add a function to a model that does not have it yet."""
    if function.name not in {one.name for one in model.functions if one.domain == function.domain}:
        model.functions.append(function)
    if all(one.domain != function.domain for one in model.opset_import):
        model.opset_import.append(helper.make_opsetid(function.domain, 1))
