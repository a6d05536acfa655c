"""Batch-invariant int8: block-wise weights and per-row activation scales (MatMulNBits).

Weights are symmetric int8 with one scale for every 32 inputs of a column. ONNX Runtime's MatMulNBits scales each row and block
of the activations separately, whereas `quantization.dynamic` has one scale for a whole batch, so a row's result does not depend
on its batch neighbours. Embeddings and fused attention with its own projection stay float32. ONNX Runtime's quantizer does the
work.
"""

import logging
from importlib import import_module
from typing import Any

from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from triptych_export.errors import GraphError
from triptych_export.graphs.lazy_graph import Graph

BITS, BLOCK = 8, 32
LARGEST_MESSAGE = 1_900_000_000  # bytes; protobuf's limit is 2^31
INTEGER_PRODUCTS = 4  # `accuracy_level`: quantize activations as well


def quantize_blocks(graph: Graph) -> Graph:
    """Copy a float32 graph with block-quantized projections by constant matrices.

    Raises:
        GraphError: the graph is too large for the quantizer, which needs it as one protobuf message.
    """
    if graph.bytes > LARGEST_MESSAGE:
        raise GraphError(
            f"int8-stable: the graph has {graph.bytes:,} bytes of weights, the quantizer takes at most {LARGEST_MESSAGE:,}"
        )
    result = graph.whole()
    weights = {tensor.name: tensor for tensor in result.graph.initializer}
    for node in list(result.graph.node):
        if node.op_type == "Gemm" and node.input[1] in weights:
            _expand_gemm(result, node, weights[node.input[1]])
    tool = _quantizer_module()
    settings = {"bits": BITS, "block_size": BLOCK, "is_symmetric": True, "accuracy_level": INTEGER_PRODUCTS}
    config = tool.DefaultWeightOnlyQuantConfig(**settings)
    quantizer = tool.MatMulNBitsQuantizer(result, **settings, algo_config=config)
    quantizer.process()
    quantized: ModelProto = quantizer.model.model
    return Graph.of(quantized)


def _quantizer_module() -> Any:
    """Import ONNX Runtime's quantizer, and undo its change of the root logger to INFO."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    module = import_module("onnxruntime.quantization.matmul_nbits_quantizer")
    root.handlers[:] = handlers
    root.setLevel(level)
    return module


def _expand_gemm(model: ModelProto, node: NodeProto, weight: TensorProto) -> None:
    """Replace a Gemm by MatMul and Add, which the quantizer recognises."""
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
