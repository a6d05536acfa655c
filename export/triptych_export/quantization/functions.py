"""Operators for quantized graphs that a graph's model defines itself, as functions.

- `per_row_product`: int8 weights times inputs that get a scale for each row when they are multiplied.
- `per_row_attention`: attention of an encoder whose queries, keys and values are such a product.
- `block_product`: weights of 4 bits with a scale and an offset for each block.
- `NormToBytes`: a residual sum, the following norm, and the rounding of its results to bytes; one node replaces three.

ONNX Runtime replaces such a node by the function's body, unless native kernels (`triptych_serving/runtime/native`) have
registered an operator of that name.
"""

from collections import Counter
from typing import Any

import numpy as np
from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from triptych_export.graphs.lazy_graph import Graph
from triptych_export.graphs.operators import BLOCK_MATMUL, DOMAIN, OWN_DOMAIN, PER_ROW_ATTENTION, PER_ROW_GEMM, PER_ROW_MATMUL

LEVELS = 255  # steps between the smallest and the largest value that a byte stands for
SMALLEST = 1e-20  # least step, since a row of zeros has no range
OPSET = 18  # of the body
FOUR_BIT_BLOCK = 32  # inputs of a column that share a scale
INT8_ACTIVATIONS = 4  # an accuracy level of MatMulNBits
NORM_TO_BYTES = "NormToBytes"


def per_row_product(with_bias: bool) -> FunctionProto:
    """Return the operator `x [..., K], weights [K, N] int8, scales [N] (, bias [N]) -> [..., N]`.

    Each row is rounded to bytes between its smallest and its largest value; 0 lies between them and stays exact. Products of
    bytes are too large by what stands for 0 times the sums of the weights, which ONNX Runtime computes when it loads the graph.
    """
    values = {
        "last": np.array([-1]),
        "first": np.array([0]),
        "start": np.array([0]),
        "stop": np.array([1]),
        "nothing": np.float32(0),
        "levels": np.float32(LEVELS),
        "smallest": np.float32(SMALLEST),
        "one": np.float32(1),
        "no_byte": np.uint8(0),
    }
    unbiased = "unbiased" if with_bias else "result"
    nodes = [
        *(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(v))) for name, v in values.items()),
        *_extreme("ReduceMax", "Max", "high"),
        *_extreme("ReduceMin", "Min", "low"),
        helper.make_node("Sub", ["high", "low"], ["range"]),
        helper.make_node("Div", ["range", "levels"], ["plain_step"]),
        helper.make_node("Max", ["plain_step", "smallest"], ["step"]),
        helper.make_node("Div", ["low", "step"], ["least"]),
        helper.make_node("Round", ["least"], ["place"]),  # negative: what stands for 0
        helper.make_node("Div", ["x", "step"], ["steps"]),
        helper.make_node("Sub", ["steps", "place"], ["moved"]),
        helper.make_node("QuantizeLinear", ["moved", "one", "no_byte"], ["bytes"]),
        helper.make_node("MatMulIntegerToFloat", ["bytes", "weights", "one", "scales", "no_byte"], ["product"], domain=DOMAIN),
        helper.make_node("Cast", ["weights"], ["float_weights"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["float_weights", "first"], ["sums"]),
        helper.make_node("Mul", ["sums", "scales"], ["scaled_sums"]),
        helper.make_node("Mul", ["place", "scaled_sums"], ["excess"]),
        helper.make_node("Add", ["product", "excess"], ["difference"]),
        helper.make_node("Mul", ["difference", "step"], [unbiased]),
        *([helper.make_node("Add", ["unbiased", "bias"], ["result"])] if with_bias else []),
    ]
    name, inputs = (PER_ROW_GEMM, ["bias"]) if with_bias else (PER_ROW_MATMUL, [])
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_function(OWN_DOMAIN, name, ["x", "weights", "scales", *inputs], ["result"], nodes, opsets)


def _extreme(reduction: str, limit: str, name: str) -> list[NodeProto]:
    """Compute the largest or smallest value of each row, or 0, `[..., 1]`."""
    return [
        helper.make_node(reduction, ["x", "last"], [f"{name}_reduced"], keepdims=1),
        # Of no rows at all, ONNX Runtime does not reduce the last dimension.
        helper.make_node("Slice", [f"{name}_reduced", "start", "stop", "last"], [f"{name}_value"]),
        helper.make_node(limit, [f"{name}_value", "nothing"], [name]),
    ]


def block_product() -> FunctionProto:
    """Return the operator `x [..., K], values [N, K / 32, 16], scales [N, K / 32], added [K / 32, N] (, bias [N]) -> [..., N]`.

    It adds to the runtime's MatMulNBits, with attributes K and N, the sum of each block of inputs times what is added to all
    weights of the block. As zero points that are no whole numbers, the runtime would restore all weights in each run.
    """
    sizes: dict[str, Any] = {"bits": 4, "block_size": FOUR_BIT_BLOCK, "accuracy_level": INT8_ACTIVATIONS}
    product = helper.make_node("MatMulNBits", ["x", "values", "scales", "", "", "bias"], ["product"], domain=DOMAIN, **sizes)
    for name in ("K", "N"):
        product.attribute.add(name=name, ref_attr_name=name, type=AttributeProto.INT)
    values = {"block": np.array([-1, FOUR_BIT_BLOCK]), "last": np.array([-1])}
    nodes = [
        *(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(v)) for name, v in values.items()),
        product,
        helper.make_node("Shape", ["x"], ["rows"], end=-1),
        helper.make_node("Concat", ["rows", "block"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["blocks"]),
        helper.make_node("ReduceSum", ["blocks", "last"], ["sums"], keepdims=0),
        helper.make_node("MatMul", ["sums", "added"], ["more"]),
        helper.make_node("Add", ["product", "more"], ["result"]),
    ]
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    inputs = ["x", "values", "scales", "added", "bias"]
    return helper.make_function(OWN_DOMAIN, BLOCK_MATMUL, inputs, ["result"], nodes, opsets, attributes=["K", "N"])


def per_row_attention() -> FunctionProto:
    """Return the operator `x [B, T, K], weights [K, 3E] int8, scales [3E], bias [3E] (, lengths [B] int32) -> [B, T, E]`.

    It needs `per_row_product(with_bias=True)`.
    """
    parts = ["query", "key", "value"]
    attention = helper.make_node("MultiHeadAttention", [*parts, "", "lengths"], ["result"], domain=DOMAIN)
    kinds = {"num_heads": AttributeProto.INT, "unidirectional": AttributeProto.INT, "scale": AttributeProto.FLOAT}
    for name, kind in kinds.items():
        attention.attribute.add(name=name, ref_attr_name=name, type=kind)
    nodes = [
        helper.make_node(PER_ROW_GEMM, ["x", "weights", "scales", "bias"], ["all"], domain=OWN_DOMAIN),
        helper.make_node("Split", ["all"], parts, axis=-1, num_outputs=3),
        attention,
    ]
    inputs = ["x", "weights", "scales", "bias", "lengths"]
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1), helper.make_opsetid(OWN_DOMAIN, 1)]
    return helper.make_function(OWN_DOMAIN, PER_ROW_ATTENTION, inputs, ["result"], nodes, opsets, attributes=list(kinds))


def add_function(model: ModelProto, function: FunctionProto) -> None:
    """Add a function to a model that does not have it yet."""
    if function.name not in {one.name for one in model.functions if one.domain == function.domain}:
        model.functions.append(function)
    if all(one.domain != function.domain for one in model.opset_import):
        model.opset_import.append(helper.make_opsetid(function.domain, 1))


def norm_to_bytes() -> FunctionProto:
    """Return the operator `x, y [..., E], weights, biases [E], step, zero -> x + y, bytes of its norm [..., E]`."""
    norm = helper.make_node("LayerNormalization", ["sum", "weights", "biases"], ["even"])
    norm.attribute.add(name="epsilon", ref_attr_name="epsilon", type=AttributeProto.FLOAT)
    nodes = [
        helper.make_node("Add", ["x", "y"], ["sum"]),
        norm,
        helper.make_node("QuantizeLinear", ["even", "step", "zero"], ["bytes"]),
    ]
    inputs, opsets = ["x", "y", "weights", "biases", "step", "zero"], [helper.make_opsetid("", OPSET)]
    return helper.make_function(OWN_DOMAIN, NORM_TO_BYTES, inputs, ["sum", "bytes"], nodes, opsets, attributes=["epsilon"])


def fuse_byte_norms(graph: Graph) -> None:
    """Fuse sums of a residual and a product with the norm that reads them, where its only reader is rounding, in place."""
    body = graph.model.graph
    makers = {name: node for node in body.node for name in node.output}
    readers = Counter(name for node in body.node for name in node.input)
    rounded = {node.input[0]: node for node in body.node if node.op_type == "QuantizeLinear"}
    bytes_ = {tensor.name for tensor in body.initializer if tensor.data_type == TensorProto.UINT8}
    for norm in [node for node in body.node if node.op_type == "LayerNormalization" and len(node.input) == 3]:
        total, reader = makers.get(norm.input[0]), rounded.get(norm.output[0])
        if total is None or reader is None or readers[norm.output[0]] != 1 or reader.input[2] not in bytes_:
            continue
        terms = [makers[name].op_type for name in total.input if name in makers]  # a product is as large as its residual
        if total.op_type != "Add" or len(terms) < 2 or "MatMulIntegerToFloat" not in terms:
            continue
        epsilon = next(each.f for each in norm.attribute if each.name == "epsilon")
        inputs, outputs = [*total.input, *norm.input[1:], *reader.input[1:]], [total.output[0], reader.output[0]]
        node = helper.make_node(NORM_TO_BYTES, inputs, outputs, domain=OWN_DOMAIN, epsilon=epsilon, name=f"{norm.name}_bytes")
        body.node.insert(list(body.node).index(total), node)
        for gone in (total, norm, reader):
            body.node.remove(gone)
        makers[total.output[0]] = node
        add_function(graph.model, norm_to_bytes())
