"""Attention graphs: the weights of every attention of a bundle's own graph, computed with a plain softmax.

The graph is derived from one that is already written, the score graph of a translation model or the only graph of an encoder:
each fused operator becomes plain ones, whose softmax becomes an output, and what no output needs is dropped. So it fits every
family and precision, refers to the same weights, and can be added to a bundle without its checkpoint. Rows must not be padded.

Outputs, `[B, L, H, T, S]`: `encoder` for the attention of the inputs to themselves; translation also has `decoder` (the targets
to themselves) and `cross` (the targets to the sources). The graph of an image classifier has a number in place of S.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from triptych_export.errors import GraphError
from triptych_export.graphs.operators import DOMAIN, OWN_DOMAIN, PER_ROW_ATTENTION, PER_ROW_GEMM, PER_ROW_MATMUL
from triptych_export.onnx_files.checks import keep_needed, replace_fields

FUSED = ("Attention", "QAttention", "MultiHeadAttention", PER_ROW_ATTENTION)
PROJECTION = (  # in bundles of earlier commits, too
    "Add",
    "DynamicQuantizeLinear",
    "DynamicQuantizeMatMul",
    "Gemm",
    "MatMul",
    "MatMulIntegerToFloat",
    PER_ROW_GEMM,
    PER_ROW_MATMUL,
    "QuantizeLinear",
)
PREFIX = "attend_"  # of new names
PIXELS = "pixels"  # input of image classifiers
ENCODER, DECODER, CROSS = "encoder", "decoder", "cross"


def write_attention_graph(graph: Path, path: Path) -> None:
    """Write the attention graph of a graph whose weights are in a file beside it.

    Raises:
        GraphError: its layers have different numbers of heads, or it has no attention.
    """
    model = onnx.load(graph, load_external_data=False)
    expose_attention(model)
    path.write_bytes(model.SerializeToString(deterministic=True))


def expose_attention(model: ModelProto) -> None:
    """Replace fused attention by plain operators, and the outputs by the attention weights, in place."""
    graph = model.graph
    writer = _Writer(model)
    found: dict[str, list[tuple[str, int]]] = {}  # weights and numbers of heads
    for node in graph.node:
        if node.op_type not in FUSED or node.domain not in (DOMAIN, OWN_DOMAIN, ""):
            writer.nodes.append(node)
            continue
        causal = bool(_attribute(node, "unidirectional", 0))
        kind = DECODER if causal else CROSS if DECODER in found else ENCODER
        found.setdefault(kind, []).append(writer.attend(node, causal))
    if not found:
        raise GraphError("attention: the graph has no attention operator")
    outputs = [writer.stack(kind, layers) for kind, layers in found.items()]
    replace_fields(graph, node=writer.nodes, output=outputs)
    graph.initializer.extend(writer.constants.values())
    keep_needed(graph, [output.name for output in outputs])


class _Writer:
    """Nodes of the new graph; `makers` are the old graph's, by output."""

    def __init__(self, model: ModelProto) -> None:
        self.makers = {name: node for node in model.graph.node for name in node.output}
        self.positions = self._positions(model)
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}

    def attend(self, node: NodeProto, causal: bool) -> tuple[str, int]:
        """Add an attention operator; return the name of its weights, `[B, H, T, S]`, and H."""
        heads, output = int(_attribute(node, "num_heads", 0)), f"{PREFIX}{node.output[0]}"
        bias = ""
        if node.op_type == "MultiHeadAttention":
            query, key, value = node.input[:3]
            self._widen(query)
            bias = node.input[5] if len(node.input) > 5 else ""
        else:
            query, key, value = (f"{output}_{name}" for name in ("query", "key", "value"))
            self.add("Split", [self._project(node)], query, key, value, axis=2, num_outputs=3)
        query = self._split(query, heads, (0, 2, 1, 3), f"{output}_queries")
        key = self._split(key, heads, (0, 2, 3, 1), f"{output}_keys")
        value = self._split(value, heads, (0, 2, 1, 3), f"{output}_values")
        scores = self.add("MatMul", [query, key], f"{output}_products")
        scores = self.add("Mul", [scores, self._scale(node, key, output)], f"{output}_scores")
        for name in filter(None, (bias, self._future(query, output) if causal else "")):
            scores = self.add("Add", [scores, name], f"{output}_plus_{name}")
        weights = self.add("Softmax", [scores], f"{output}_weights", axis=-1)
        context = self.add("MatMul", [weights, value], f"{output}_contexts")
        context = self.add("Transpose", [context], f"{output}_by_position", perm=(0, 2, 1, 3))
        self.add("Reshape", [context, self._constant("merged", np.array([0, 0, -1]))], node.output[0])
        return weights, heads

    def stack(self, kind: str, found: Sequence[tuple[str, int]]) -> onnx.ValueInfoProto:
        """Stack the weights of all layers as an output."""
        heads = {number for _, number in found}
        if len(heads) > 1:
            raise GraphError(f"attention: layers of {', '.join(map(str, sorted(heads)))} heads cannot be in one array")
        axis = self._constant("layer_axis", np.array([1]))
        layers = [self.add("Unsqueeze", [name, axis], f"{name}_layer") for name, _ in found]
        self.add("Cast", [self.add("Concat", layers, f"{kind}_layers", axis=1)], kind, to=TensorProto.FLOAT)
        queries, keys = {ENCODER: (self.positions, self.positions), DECODER: ("T", "T"), CROSS: ("T", "S")}[kind]
        return helper.make_tensor_value_info(kind, TensorProto.FLOAT, ["B", len(found), *heads, queries, keys])

    def add(self, kind: str, inputs: Sequence[str], *outputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node; return the name of its first output."""
        self.nodes.append(helper.make_node(kind, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    def _positions(self, model: ModelProto) -> int | str:
        """Return the number of positions that the first attention reads, known where an image has a fixed size; else "S"."""
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.value_info
        shapes = {value.name: [size.dim_value for size in value.type.tensor_type.shape.dim] for value in inferred}
        node = next((node for node in model.graph.node if node.op_type in FUSED), None)
        while node is not None and model.graph.input[0].name == PIXELS:
            name = node.input[1] if node.op_type == "MultiHeadAttention" else node.input[0]  # queries may be of some positions
            if len(shape := shapes.get(name, [])) == 3 and shape[1]:
                return int(shape[1])
            node = self.makers.get(name)
        return "S"

    def _project(self, node: NodeProto) -> str:
        """Add the projection to queries, keys and values that the operator includes."""
        name = f"{PREFIX}{node.output[0]}_projected"
        x, weight, bias = node.input[:3]
        if node.op_type == "QAttention":
            step, scale, zero = node.input[3], node.input[4], node.input[6]
            return self.add("MatMulIntegerToFloat", [x, weight, step, scale, zero, "", bias], name, domain=DOMAIN)
        if node.op_type == PER_ROW_ATTENTION:
            return self.add(PER_ROW_GEMM, node.input[:4], name, domain=OWN_DOMAIN)
        return self.add("Add", [self.add("MatMul", [x, weight], f"{name}_unbiased"), bias], name)

    def _widen(self, query: str) -> None:
        """Give a layer that computes the first positions only the queries of all positions."""
        node = self.makers.get(query)
        while node is not None and node.op_type in PROJECTION:
            before = next((made for name in node.input if (made := self.makers.get(name)) is not None), None)
            if before is not None and before.op_type == "Slice":
                node.input[:] = [before.input[0] if name == before.output[0] else name for name in node.input]
                return
            node = before

    def _split(self, name: str, heads: int, order: tuple[int, ...], output: str) -> str:
        """`[B, T, H*D]` -> `[B, H, T, D]`, or another order of these."""
        shape = self._constant(f"shape_of_{heads}_heads", np.array([0, 0, heads, -1]))
        return self.add("Transpose", [self.add("Reshape", [name, shape], f"{output}_by_position")], output, perm=order)

    def _scale(self, node: NodeProto, key: str, output: str) -> str:
        """Factor of query-key products; `key` is `[B, H, D, S]`."""
        if scale := _attribute(node, "scale", 0.0):
            return self.add("CastLike", [self._constant(f"scale_{scale}", np.array(scale, np.float32)), key], f"{output}_scale")
        size = self.add("CastLike", [self.add("Shape", [key], f"{output}_head_dim", start=2, end=3), key], f"{output}_size")
        return self.add("Reciprocal", [self.add("Sqrt", [size], f"{output}_root")], f"{output}_scale")

    def _future(self, query: str, output: str) -> str:
        """Bias `[T, T]` that excludes later positions; `query` is `[B, H, T, D]`."""
        length = self.add("Shape", [query], f"{output}_length", start=2, end=3)
        square = self.add("Concat", [length, length], f"{output}_square", axis=0)
        never = self._constant("never", np.array(-np.inf, np.float32))
        whole = self.add("Expand", [self.add("CastLike", [never, query], f"{output}_never"), square], f"{output}_excluded")
        return self.add("Trilu", [whole, self._constant("one", np.array(1))], f"{output}_future", upper=1)

    def _constant(self, name: str, value: np.ndarray) -> str:
        name = f"{PREFIX}{name}"
        self.constants[name] = numpy_helper.from_array(value, name)
        return name


def _attribute(node: NodeProto, name: str, default: float) -> float:
    return next((float(helper.get_attribute_value(each)) for each in node.attribute if each.name == name), default)
