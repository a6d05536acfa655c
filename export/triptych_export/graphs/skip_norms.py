"""Fusion of residual sums with the following norm for CUDA: one kernel instead of three.

The runtime does this itself only if no other node reads the sum, as in post-norm models; in pre-norm models the next residual
does. `SkipLayerNormalization` also returns the sum, and adds the bias of the preceding projection. On the CPU it is slower.
"""

from collections import Counter
from collections.abc import Mapping

from onnx import NodeProto, helper

from triptych_export.graphs.lazy_graph import Graph
from triptych_export.graphs.operators import DOMAIN

FUSED = {"LayerNormalization": "SkipLayerNormalization", "SimplifiedLayerNormalization": "SkipSimplifiedLayerNormalization"}
WEIGHTS = {"SkipLayerNormalization": 2, "SkipSimplifiedLayerNormalization": 1}  # inputs before the projection's bias
SUM_OUTPUT = 3
Shape = tuple[object, ...]


def fuse_skip_norms(graph: Graph) -> Graph:
    """Fuse sums of two tensors with the norm that reads them, and with a preceding bias, in place."""
    fusion = _Fusion(graph)
    for norm in list(graph.model.graph.node):
        if norm.op_type in FUSED:
            fusion.fuse(norm)
    return graph


class _Fusion:
    def __init__(self, graph: Graph) -> None:
        self.body = graph.model.graph
        self.weights = {tensor.name: tuple(tensor.dims) for tensor in self.body.initializer}
        values = (*self.body.input, *self.body.output, *self.body.value_info)
        self.shapes: Mapping[str, Shape] = {
            value.name: tuple(d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim) for value in values
        }
        self.makers = {name: node for node in self.body.node for name in node.output}
        self.readers = Counter(name for node in self.body.node for name in node.input)
        self.readers.update(value.name for value in self.body.output)

    def fuse(self, norm: NodeProto) -> None:
        total = self._sum_before(norm)
        if total is None:
            return
        terms, bias, gone = list(total.input), "", [total, norm]
        for index, name in enumerate(terms):
            biased = self._bias_before(name)
            if biased is not None:
                terms[index], bias = biased.input
                gone.append(biased)
                break
        outputs = [norm.output[0], *([""] * (SUM_OUTPUT - 1)), total.output[0]]
        if self.readers[total.output[0]] == 1:
            del outputs[1:]
        kind, epsilon = FUSED[norm.op_type], next(a.f for a in norm.attribute if a.name == "epsilon")
        weights = list(norm.input[1:])
        if bias:
            absent = [""] * (WEIGHTS[kind] - len(weights))
            weights += [*absent, bias]
        node = helper.make_node(kind, [*terms, *weights], outputs, domain=DOMAIN, epsilon=epsilon, name=f"{norm.name}_skip")
        self.body.node.insert(list(self.body.node).index(total), node)
        for each in gone:
            self.body.node.remove(each)
        self.makers.update(dict.fromkeys(filter(None, outputs), node))

    def _sum_before(self, norm: NodeProto) -> NodeProto | None:
        """Find the sum of two equally shaped tensors that a norm reads; with several norms, the first one takes it."""
        node = self.makers.get(norm.input[0])
        if node is None or node.op_type != "Add" or any(name in self.weights for name in node.input):
            return None
        left, right = (self.shapes.get(name) for name in node.input)
        return node if left is not None and left == right else None

    def _bias_before(self, name: str) -> NodeProto | None:
        """Find the bias addition before a sum, if the sum is its only reader."""
        node = self.makers.get(name)
        if node is None or node.op_type != "Add" or self.readers[name] != 1:
            return None
        first, second = node.input
        return node if first not in self.weights and len(self.weights.get(second, ())) == 1 else None
