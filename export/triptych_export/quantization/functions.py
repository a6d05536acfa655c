"""Operators for int8 graphs that a graph's model defines itself, as functions.

- `per_token_product`: int8 weights times inputs that get a scale for each row when they are multiplied.
- `per_token_attention`: attention of an encoder whose queries, keys and values are such a product.
- `NormToBytes`: a residual sum, the following norm, and the rounding of its results to bytes; one node replaces three.

ONNX Runtime replaces such a node by the function's body, unless native kernels (`triptych_serving/runtime/native`) have
registered an operator of that name.
"""

from collections import Counter

import numpy as np
from onnx import AttributeProto, FunctionProto, ModelProto, TensorProto, helper, numpy_helper

from triptych_export.graphs.lazy_graph import Graph
from triptych_export.graphs.operators import DOMAIN, OWN_DOMAIN, PER_TOKEN_ATTENTION, PER_TOKEN_GEMM, PER_TOKEN_MATMUL

STEP = 1 / 127  # scale of a row that was divided by its largest magnitude
SMALLEST = 1e-20  # largest magnitude from which on a row is told from zeros
CENTRE = 128  # the byte that stands for 0
OPSET = 18  # of the body
NORM_TO_BYTES = "NormToBytes"


def per_token_product(with_bias: bool) -> FunctionProto:
    """Return the operator `x [..., K], weights [K, N] int8, scales [N] (, bias [N]) -> [..., N]`."""
    values = {
        "axis": np.array([-1]),
        "start": np.array([0]),
        "stop": np.array([1]),
        "least": np.float32(SMALLEST),
        "step": np.float32(STEP),
        "zero": np.uint8(CENTRE),
    }
    scaled = "scaled" if with_bias else "result"
    nodes = [
        *(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(v))) for name, v in values.items()),
        helper.make_node("Abs", ["x"], ["size"]),
        helper.make_node("ReduceMax", ["size", "axis"], ["reduced"], keepdims=1),
        # Of no rows at all, ONNX Runtime does not reduce the last dimension.
        helper.make_node("Slice", ["reduced", "start", "stop", "axis"], ["found"]),
        helper.make_node("Max", ["found", "least"], ["largest"]),
        helper.make_node("Div", ["x", "largest"], ["shares"]),
        helper.make_node("QuantizeLinear", ["shares", "step", "zero"], ["bytes"]),
        helper.make_node("MatMulIntegerToFloat", ["bytes", "weights", "step", "scales", "zero"], ["product"], domain=DOMAIN),
        helper.make_node("Mul", ["product", "largest"], [scaled]),
        *([helper.make_node("Add", ["scaled", "bias"], ["result"])] if with_bias else []),
    ]
    name, inputs = (PER_TOKEN_GEMM, ["bias"]) if with_bias else (PER_TOKEN_MATMUL, [])
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_function(OWN_DOMAIN, name, ["x", "weights", "scales", *inputs], ["result"], nodes, opsets)


def per_token_attention() -> FunctionProto:
    """Return the operator `x [B, T, K], weights [K, 3E] int8, scales [3E], bias [3E] (, lengths [B] int32) -> [B, T, E]`.

    It needs `per_token_product(with_bias=True)`.
    """
    parts = ["query", "key", "value"]
    attention = helper.make_node("MultiHeadAttention", [*parts, "", "lengths"], ["result"], domain=DOMAIN)
    kinds = {"num_heads": AttributeProto.INT, "unidirectional": AttributeProto.INT, "scale": AttributeProto.FLOAT}
    for name, kind in kinds.items():
        attention.attribute.add(name=name, ref_attr_name=name, type=kind)
    nodes = [
        helper.make_node(PER_TOKEN_GEMM, ["x", "weights", "scales", "bias"], ["all"], domain=OWN_DOMAIN),
        helper.make_node("Split", ["all"], parts, axis=-1, num_outputs=3),
        attention,
    ]
    inputs = ["x", "weights", "scales", "bias", "lengths"]
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1), helper.make_opsetid(OWN_DOMAIN, 1)]
    return helper.make_function(OWN_DOMAIN, PER_TOKEN_ATTENTION, inputs, ["result"], nodes, opsets, attributes=list(kinds))


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
