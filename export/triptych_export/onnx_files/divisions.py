"""Integer divisions that cannot end the process: processors treat the smallest integer divided by -1 as a fault."""

from collections.abc import Iterator, Mapping

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper, shape_inference

from triptych_export.onnx_files.checks import graphs_of, replace_fields

OPERATORS = ("Div", "Mod")
KINDS = (TensorProto.INT32, TensorProto.INT64)  # smaller integers are computed with 32 bits

Types = Mapping[str, int]  # of tensors, by their names


def guard_divisions(model: ModelProto) -> int:
    """Let `Div` and `Mod` divide by 1 instead of -1, of negated numbers: the results are the same. Returns the number of nodes.

    Divisors that are constants without -1 are left alone, as are local functions and nodes of unknown type.
    """
    return _guard(model.graph, shape_inference.infer_shapes(model).graph, {}, frozenset())


def _guard(graph: GraphProto, inferred: GraphProto, outer: Types, harmless: frozenset[str]) -> int:
    """Guard the nodes of a graph and of those in it; `inferred` is the graph with types, `harmless` has constants around it."""
    values = (*inferred.input, *inferred.value_info, *inferred.output)
    types = {**outer, **{one.name: one.type.tensor_type.elem_type for one in values}}
    types |= {one.name: one.data_type for one in inferred.initializer}
    harmless = harmless.union(name for name, one in _constants(graph) if not (numpy_helper.to_array(one) == -1).any())
    nodes, count = list[NodeProto](), 0
    for node, known in zip(graph.node, inferred.node, strict=True):
        for attribute, same in zip(node.attribute, known.attribute, strict=True):
            for inner, each in zip(graphs_of(attribute), graphs_of(same), strict=True):
                count += _guard(inner, each, types, harmless)
        kind = next((types[name] for name in (*node.input, *node.output) if name in types), TensorProto.UNDEFINED)
        if node.op_type in OPERATORS and node.domain in ("", "ai.onnx") and kind in KINDS and node.input[1] not in harmless:
            nodes.extend(_negation(node, kind))
            count += 1
        nodes.append(node)
    replace_fields(graph, node=nodes)
    return count


def _constants(graph: GraphProto) -> Iterator[tuple[str, TensorProto]]:
    """Yield the integers that a graph stores with the names that nodes read, without those in other files."""
    stored = [(one.name, one) for one in graph.initializer]
    for node in graph.node:
        if node.op_type == "Constant":
            stored += [(node.output[0], attribute.t) for attribute in node.attribute if attribute.name == "value"]
    return ((name, one) for name, one in stored if one.data_type in KINDS and one.data_location != TensorProto.EXTERNAL)


def _negation(node: NodeProto, kind: int) -> Iterator[NodeProto]:
    """Multiply the inputs of a node by -1 where the second one is -1, else by 1."""
    prefix = f"triptych/{node.output[0]}"
    names = {name: f"{prefix}/{name}" for name in ("minus_one", "minus_two", "one", "is", "flag", "change", "sign", "a", "b")}
    for name, value in (("minus_one", -1), ("minus_two", -2), ("one", 1)):
        constant = numpy_helper.from_array(np.array(value, helper.tensor_dtype_to_np_dtype(kind)))
        yield helper.make_node("Constant", [], [names[name]], value=constant)
    yield helper.make_node("Equal", [node.input[1], names["minus_one"]], [names["is"]])
    yield helper.make_node("Cast", [names["is"]], [names["flag"]], to=kind)
    yield helper.make_node("Mul", [names["flag"], names["minus_two"]], [names["change"]])
    yield helper.make_node("Add", [names["change"], names["one"]], [names["sign"]])
    for index, name in enumerate("ab"):
        yield helper.make_node("Mul", [node.input[index], names["sign"]], [names[name]])
        node.input[index] = names[name]
