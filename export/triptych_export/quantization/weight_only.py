"""Weight-only int8: matrices in int8 blocks, restored to float32 when the graph is loaded; activations are never quantized.

Vectors of texts hardly change: blocks of 64 inputs have scales of their own. ONNX Runtime computes DequantizeLinear of
constants while loading (`restores_weights` of Session), so that speed and memory are those of float32; only the file has a
quarter of the size. One node a matrix: the runtime keeps what it computes until the whole graph is loaded.
"""

from math import gcd

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, helper

from triptych_export.graphs.lazy_graph import Graph
from triptych_export.quantization.dynamic import LARGEST, Floats, Quantizer, is_transposed, quantize_columns

BLOCK, SMALLEST_BLOCK = 64, 16  # inputs of a column that share a scale


def quantize_weights(graph: Graph) -> Graph:
    """Copy a float32 graph with matrices and tables in int8; raises GraphError if the graph has no projection to quantize."""
    result = graph.copy()
    _WeightQuantizer(result, LARGEST[8]).run()
    return result


class _WeightQuantizer(Quantizer):
    """Quantizer of the same matrices as dynamic int8, which keeps the operators and restores their weights."""

    def __init__(self, whole: Graph, largest: int) -> None:
        super().__init__(whole, largest)
        self.restoring: list[NodeProto] = []
        self.restored: set[str] = set()

    def _project(self, node: NodeProto, absorbed: set[str]) -> list[NodeProto]:
        kept = NodeProto()
        kept.CopyFrom(node)
        kept.input[1] = self._restored(node.input[1], is_transposed(node))
        for attribute in kept.attribute:
            if attribute.name == "transB":
                attribute.i = 0
        return [kept]

    def _attend(self, node: NodeProto) -> list[NodeProto]:
        return self._project(node, set())

    def _restored(self, name: str, transpose: bool) -> str:
        """Add the int8 blocks of a matrix and the nodes that restore it as `[K, N]`; return its name."""
        whole = f"{name}_restored_{'T' if transpose else 'N'}"
        if whole in self.restored:
            return whole
        self.restored.add(whole)
        columns, rows = self._shape(name) if transpose else reversed(self._shape(name))
        block = gcd(rows, BLOCK) if gcd(rows, BLOCK) >= SMALLEST_BLOCK else rows

        def parts() -> tuple[NDArray[np.int8], Floats]:
            matrix = self._values(name).T if transpose else self._values(name)
            blocks = matrix.reshape(-1, block, columns).transpose(1, 0, 2).reshape(block, -1)
            values, scales = quantize_columns(blocks, self.largest)
            ordered = np.ascontiguousarray(values.reshape(block, -1, columns).transpose(1, 0, 2))
            return ordered.reshape(rows, columns), scales.reshape(-1, columns)

        integers, scales = f"{whole}_int8", f"{whole}_scales"
        self._add(integers, (rows, columns), lambda: parts()[0])
        self._constant(scales, parts()[1])
        self.restoring.append(helper.make_node("DequantizeLinear", [integers, scales], [whole], axis=0, block_size=block))
        return whole

    def _replace(self, nodes: list[NodeProto]) -> None:
        super()._replace([*self.restoring, *nodes])
