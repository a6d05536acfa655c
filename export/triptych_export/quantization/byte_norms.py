"""Fusion of residual sums with the following norm and the rounding of its results to bytes, in int8 graphs.

A node of such an operator replaces three. The model itself defines the operator as a function, as in `per_token`: ONNX Runtime
replaces the node by the three, unless native kernels have registered an operator of that name.
"""

from collections import Counter

from onnx import AttributeProto, FunctionProto, TensorProto, helper

from triptych_export.graphs.lazy_graph import Graph
from triptych_export.quantization.per_token import OPSET, OWN_DOMAIN, add_function

NAME = "NormToBytes"


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
    return helper.make_function(OWN_DOMAIN, NAME, inputs, ["sum", "bytes"], nodes, opsets, attributes=["epsilon"])


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
        node = helper.make_node(NAME, inputs, outputs, domain=OWN_DOMAIN, epsilon=epsilon, name=f"{norm.name}_bytes")
        body.node.insert(list(body.node).index(total), node)
        for gone in (total, norm, reader):
            body.node.remove(gone)
        makers[total.output[0]] = node
        add_function(graph.model, norm_to_bytes())
