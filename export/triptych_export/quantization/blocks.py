"""int8 in blocks: a row's answer does not depend on the rows beside it.

Weights are symmetric int8 with a scale for every 32 inputs of a column, and ONNX Runtime's MatMulNBits gives each row and block
of the activations a scale of its own, where `quantization` has one for a whole batch. Embeddings and attention that projects
by itself stay float32. The work is done by ONNX Runtime's own quantizer.
"""

import logging
from importlib import import_module
from typing import Any

from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from triptych_export.errors import GraphError
from triptych_export.graphs.lazy_graph import Graph

BITS, BLOCK = 8, 32
LARGEST_MESSAGE = 1_900_000_000  # bytes; protobuf ends at 2^31
INTEGER_PRODUCTS = 4  # `accuracy_level`: activations are quantized too


def quantize_blocks(graph: Graph) -> Graph:
    """A copy of a float32 graph whose projections by a constant matrix are in blocks.

    Raises:
        GraphError: the graph is too large for the quantizer, which wants it in one message.
    """
    if graph.bytes > LARGEST_MESSAGE:
        raise GraphError(
            f"int8-stable: the graph has {graph.bytes:,} bytes of weights, at most {LARGEST_MESSAGE:,} can be quantized"
        )
    result = graph.whole()
    weights = {tensor.name: tensor for tensor in result.graph.initializer}
    for node in list(result.graph.node):
        if node.op_type == "Gemm" and node.input[1] in weights:
            _spell_out(result, node, weights[node.input[1]])
    tool = _quantizer_module()
    settings = {"bits": BITS, "block_size": BLOCK, "is_symmetric": True, "accuracy_level": INTEGER_PRODUCTS}
    config = tool.DefaultWeightOnlyQuantConfig(**settings)
    quantizer = tool.MatMulNBitsQuantizer(result, **settings, algo_config=config)
    quantizer.process()
    quantized: ModelProto = quantizer.model.model
    return Graph.of(quantized)


def _quantizer_module() -> Any:
    """Imported when it is needed: it turns everybody's log to INFO, which is undone here."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    module = import_module("onnxruntime.quantization.matmul_nbits_quantizer")
    root.handlers[:] = handlers
    root.setLevel(level)
    return module


def _spell_out(model: ModelProto, node: NodeProto, weight: TensorProto) -> None:
    """Gemm as MatMul and Add, which is what the quantizer looks for."""
    matrix = numpy_helper.to_array(weight)
    transposed = any(a.name == "transB" and a.i for a in node.attribute)
    name = f"{node.output[0]}_weight"
    model.graph.initializer.append(numpy_helper.from_array((matrix.T if transposed else matrix).copy(), name))
    bias, output = list(node.input[2:3]), node.output[0]
    product = f"{output}_product" if bias else output
    nodes = [helper.make_node("MatMul", [node.input[0], name], [product], name=f"{output}_projection")]
    if bias:
        nodes.append(helper.make_node("Add", [product, *bias], [output]))
    place = list(model.graph.node).index(node)
    model.graph.node.remove(node)
    for offset, new in enumerate(nodes):
        model.graph.node.insert(place + offset, new)
