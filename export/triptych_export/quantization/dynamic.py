"""int8 graphs: int8 weights, and activations with a scale for each projection or each row, so that no row depends on others.

Weights are symmetric int8 with one scale per column (signed: 1.3-1.45 times faster than unsigned with VNNI). A projection whose
input is marked (`graphs.input_scales`) becomes `QuantizeLinear` and `MatMulIntegerToFloat`; in any other one each row has its
own scale, and it is one node of `functions`. Both include the bias. Fused attention with its own projection becomes likewise
`QAttention` or a node of `functions`; a projection of bytes (pixels) multiplies the bytes directly; an embedding is gathered in
int8 and scaled row by row. Kernels of convolutions are stored in int8, and computed with in float32, as everything else is.

Without VNNI, x86 adds two products of a byte and a weight in 16 bits. Weights within +-64 (`weight_bits=7`) cannot overflow,
since 2 * 255 * 64 < 2^15: the fast kernels are then exact on every processor, at half of the weights' resolution.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

from triptych_export.errors import GraphError
from triptych_export.graphs.input_scales import InputScale, drop_marks, is_mark, scale_of
from triptych_export.graphs.lazy_graph import Graph, Maker
from triptych_export.graphs.operators import DOMAIN, OWN_DOMAIN, PER_ROW_ATTENTION
from triptych_export.onnx_files.checks import replace_fields
from triptych_export.quantization.functions import add_function, per_row_attention, per_row_product

Floats = NDArray[np.float32]
SMALLEST_TABLE = 1_024  # rows; smaller tables (positions) are not worth quantizing
NARROWEST = 16  # columns; a projection to a few classes is cheap, and rounding it would show in the result
LARGEST = {8: 127, 7: 64}  # largest weight by number of bits
AT_ONCE = 1 << 22  # weights quantized at a time, to save memory
ROUNDED = 1e-3  # steps between rounded weights and integers, at most
BYTE_CENTRE = 128  # bytes are quantized relative to this value


def quantize(graph: Graph, weight_bits: int = 8) -> Graph:
    """Copy a float32 graph in int8; `weight_bits` are 8, or 7 for weights whose products never saturate.

    Raises:
        GraphError: the graph has no projection to quantize.
        ValueError: `weight_bits` is neither 7 nor 8.
    """
    if weight_bits not in LARGEST:
        raise ValueError(f"weight_bits: {weight_bits} is not one of {', '.join(map(str, sorted(LARGEST)))}")
    result = graph.copy()
    Quantizer(result, LARGEST[weight_bits]).run()
    return result


class Quantizer:
    """Rewriter of a graph in place: `largest` is the largest quantized weight."""

    def __init__(self, whole: Graph, largest: int) -> None:
        model = whole.model
        self.whole, self.originals, self.graph = whole, Graph(model, dict(whole.tensors)), model.graph
        self.largest = largest
        self.outputs = {value.name for value in model.graph.output}
        self.weights = {tensor.name: tensor for tensor in model.graph.initializer}
        self.readers: dict[str, list[NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        kinds = {value.name: value.type.tensor_type.elem_type for value in [*model.graph.input, *model.graph.value_info]}
        casts = [node for node in model.graph.node if node.op_type == "Cast" and node.attribute[0].i == TensorProto.FLOAT]
        # Names of bytes by the names of the floats that they are cast to.
        self.bytes = {node.output[0]: node.input[0] for node in casts if kinds.get(node.input[0]) == TensorProto.UINT8}
        self.added: dict[str, TensorProto] = {}
        self.marks = {node.output[0]: node for node in model.graph.node if is_mark(node)}
        self.quantized_inputs: dict[tuple[str, InputScale], list[str]] = {}
        self.tied = self._find_tied()
        self.transposes: dict[str, NodeProto] = {}  # of tied tables, by the name of the result

    def run(self) -> None:
        nodes: list[NodeProto] = []
        absorbed: set[str] = set()  # outputs of Add nodes that were fused into a projection
        projections = 0
        for node in self.graph.node:
            if node.output[0] in absorbed:
                continue
            if self._is_projection(node):
                nodes += self._project(node, absorbed)
                projections += 1
            elif node.op_type == "DynamicQuantizeMatMul":  # of a shortlist
                nodes += self._multiply(node.input[0], node.input[1], node.input[2], node.input[4], node.output[0])
                projections += 1
            elif node.op_type == "Attention" and node.domain == DOMAIN and self._rank(node.input[1]) == 2:
                nodes += self._attend(node)
                projections += 1
            elif self._is_table(node):
                nodes += self._gather(node)
            elif node.op_type == "Conv" and self._rank(node.input[1]) > 2:
                nodes += self._convolve(node)
                projections += 1
            else:
                nodes.append(node)
        if not projections:
            raise GraphError("quantization: the graph has no projection by a constant matrix")
        self._replace([*self.transposes.values(), *nodes])
        drop_marks(self.whole)

    def _is_projection(self, node: NodeProto) -> bool:
        if node.op_type not in ("Gemm", "MatMul") or self._rank(node.input[1]) != 2 or not _is_plain(node):
            return False
        return self.weights[node.input[1]].dims[0 if is_transposed(node) else 1] >= NARROWEST

    def _is_table(self, node: NodeProto) -> bool:
        name = node.input[0]
        if node.op_type != "Gather" or self._rank(name) != 2 or not _is_plain(node):
            return False
        return self.weights[name].dims[0] >= SMALLEST_TABLE

    def _rank(self, name: str) -> int:
        """Return the rank of a constant, or -1 if `name` is computed."""
        return len(self.weights[name].dims) if name in self.weights else -1

    def _project(self, node: NodeProto, absorbed: set[str]) -> list[NodeProto]:
        weight, scale = self._quantized(node.input[1], transpose=is_transposed(node))
        bias, output = self._biased(node, absorbed)
        if node.input[0] in self.bytes:
            return [self._project_bytes(node, weight, scale, bias, output)]
        return self._multiply(node.input[0], weight, scale, bias, output)

    def _multiply(self, source: str, weight: str, scale: str, bias: str, output: str) -> list[NodeProto]:
        """Multiply an input by int8 weights, each row for itself."""
        if source in self.marks:
            nodes, (x, step, zero) = self._quantized_input(source)
            inputs = [x, weight, step, scale, zero, "", bias]
            return [*nodes, helper.make_node("MatMulIntegerToFloat", inputs, [output], domain=DOMAIN)]
        function = per_row_product(with_bias=bool(bias))
        add_function(self.whole.model, function)
        inputs = [source, weight, scale, *([bias] if bias else [])]
        return [helper.make_node(function.name, inputs, [output], domain=function.domain)]

    def _quantized_input(self, marked: str) -> tuple[list[NodeProto], list[str]]:
        """Quantize a marked input, once for all its readers; return the nodes and the names of integers, scale and zero."""
        mark = self.marks[marked]
        source, scale = mark.input[0], scale_of(mark)
        if known := self.quantized_inputs.get((source, scale)):
            return [], known
        step = self._constant(f"{marked}_step", np.float32(scale.scale))
        names = [f"{marked}_int8", step, self._constant(f"{marked}_zero", np.uint8(scale.zero_point))]
        self.quantized_inputs[source, scale] = names
        return [helper.make_node("QuantizeLinear", [source, *names[1:]], names[:1])], names

    def _constant(self, name: str, value: np.generic | NDArray[Any]) -> str:
        self.added[name] = numpy_helper.from_array(np.asarray(value), name)
        return name

    def _project_bytes(self, node: NodeProto, weight: str, scale: str, bias: str, output: str) -> NodeProto:
        """Multiply bytes by weights. Bytes are centred, so that rounding errors of weights meet small numbers of both signs."""
        matrix: Floats = self._values(node.input[1])
        given = self._values(bias) if bias else 0.0
        shift = BYTE_CENTRE * matrix.astype(np.float64).sum(axis=1 if is_transposed(node) else 0)
        name = self._constant(f"{node.input[1]}_shift", (given + shift).astype(np.float32))
        one = self._constant(f"{node.input[1]}_one", np.float32(1))
        centre = self._constant(f"{node.input[1]}_centre", np.uint8(BYTE_CENTRE))
        inputs = [self.bytes[node.input[0]], weight, one, scale, centre, "", name]
        return helper.make_node("MatMulIntegerToFloat", inputs, [output], name=f"{node.name}_int8", domain=DOMAIN)

    def _attend(self, node: NodeProto) -> list[NodeProto]:
        """Run attention with an integer projection."""
        weight, scale = self._quantized(node.input[1], transpose=False)
        source, output, lengths = node.input[0], node.output[0], list(node.input[3:4])
        if source in self.marks:
            nodes, (x, step, zero) = self._quantized_input(source)
            inputs = [x, weight, node.input[2], step, scale, *(lengths or [""]), zero]
            attention = helper.make_node("QAttention", inputs, [output], domain=DOMAIN)
        else:
            for function in (per_row_product(with_bias=True), per_row_attention()):
                add_function(self.whole.model, function)
            nodes, inputs = [], [source, weight, scale, node.input[2], *lengths]
            attention = helper.make_node(PER_ROW_ATTENTION, inputs, [output], domain=OWN_DOMAIN)
        attention.attribute.extend(node.attribute)
        return [*nodes, attention]

    def _biased(self, node: NodeProto, absorbed: set[str]) -> tuple[str, str]:
        """Return the names of a projection's bias ("": none) and result.

        An Add of a constant vector is absorbed if it is the only reader of the projection.
        """
        bias, output = (node.input[2] if len(node.input) > 2 else ""), node.output[0]
        readers = self.readers.get(output, [])
        if bias or len(readers) != 1 or readers[0].op_type != "Add" or output in self.outputs:
            return bias, output
        other = next((name for name in readers[0].input if name != output), "")
        if self._rank(other) != 1:
            return "", output
        absorbed.add(readers[0].output[0])
        return other, readers[0].output[0]

    def _find_tied(self) -> dict[str, str]:
        """Find the projections whose matrix is a table of embeddings; returns the table's name for each."""
        tables = {node.input[0] for node in self.graph.node if self._is_table(node)}
        matrices = {node.input[1] for node in self.graph.node if self._is_projection(node) and is_transposed(node)}
        pairs = ((matrix, table) for matrix in matrices for table in tables if self._shape(matrix) == self._shape(table))
        return {matrix: table for matrix, table in pairs if np.array_equal(self._values(matrix), self._values(table))}

    def _gather(self, node: NodeProto) -> list[NodeProto]:
        """Gather rows in int8, then multiply by their scales."""
        table, column = self._table(node.input[0])
        output = node.output[0]
        return [
            helper.make_node("Gather", [table, node.input[1]], [f"{output}_int8"], axis=0),
            helper.make_node("Cast", [f"{output}_int8"], [f"{output}_float"], to=TensorProto.FLOAT),
            helper.make_node("Gather", [column, node.input[1]], [f"{output}_scale"], axis=0),
            helper.make_node("Mul", [f"{output}_float", f"{output}_scale"], [output]),
        ]

    def _convolve(self, node: NodeProto) -> list[NodeProto]:
        """Store the kernel `[N, ...]` in int8; ONNX Runtime multiplies it by its scales when it loads the graph."""
        name = node.input[1]
        stored, scale, cast, restored = (f"{name}_{part}" for part in ("int8", "scale", "cast", "restored"))
        node.input[1] = restored
        if stored in self.added:
            return [node]
        shape = self._shape(name)

        def columns() -> Floats:
            return self._values(name).reshape(shape[0], -1).T

        self._add(stored, shape, lambda: np.ascontiguousarray(quantize_columns(columns())[0].T).reshape(shape))
        self._constant(scale, column_scales(columns()).reshape(-1, *[1] * (len(shape) - 1)))
        return [
            helper.make_node("Cast", [stored], [cast], to=TensorProto.FLOAT),
            helper.make_node("Mul", [cast, scale], [restored]),
            node,
        ]

    def _table(self, name: str) -> tuple[str, str]:
        """Add the int8 matrix `[N, K]` and the scales of its rows `[N, 1]`; return their names."""
        table, column = f"{name}_int8", f"{name}_scale_column"
        if table not in self.added:
            shares = name in self.tied.values() or _is_rounded(self._values(name).T, self.largest)
            limit = self.largest if shares else LARGEST[8]
            self._add(
                table, self._shape(name), lambda: np.ascontiguousarray(quantize_columns(self._values(name).T, limit)[0].T)
            )
            self._constant(column, column_scales(self._values(name).T, limit)[:, None])
        return table, column

    def _quantized(self, name: str, transpose: bool) -> tuple[str, str]:
        """Add the int8 matrix `[K, N]` and its scales `[N]`; return their names.

        A matrix that is also a table of embeddings is stored once; ONNX Runtime transposes it when it loads the graph.
        """
        weight, scale = f"{name}_int8_{'T' if transpose else 'N'}", f"{name}_scale"
        if transpose and name in self.tied:
            table, _ = self._table(self.tied[name])
            self.transposes[weight] = helper.make_node("Transpose", [table], [weight], perm=[1, 0])
            self._constant(scale, column_scales(self._values(name).T, self.largest))
        elif weight not in self.added:
            rows, columns = self._shape(name)

            def matrix() -> Floats:
                return self._values(name).T if transpose else self._values(name)

            self._add(
                weight, (columns, rows) if transpose else (rows, columns), lambda: quantize_columns(matrix(), self.largest)[0]
            )
            self._constant(scale, column_scales(matrix(), self.largest))
        return weight, scale

    def _values(self, name: str) -> Floats:
        """Compute the values of a constant; not cached, to save memory."""
        values: Floats = self.originals.values(self.weights[name])
        return values

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.weights[name].dims)

    def _add(self, name: str, shape: tuple[int, ...], maker: Maker) -> None:
        self.added[name] = self.whole.add(name, np.dtype(np.int8), shape, maker)

    def _replace(self, nodes: list[NodeProto]) -> None:
        used = {name for node in nodes for name in node.input} | self.outputs
        nodes = [node for node in nodes if not self.bytes.keys() & set(node.output) or used & set(node.output)]
        kept = [tensor for tensor in [*self.weights.values(), *self.added.values()] if tensor.name in used]
        replace_fields(self.graph, node=nodes, initializer=kept, value_info=())
        for name in self.whole.tensors.keys() - used:
            del self.whole.tensors[name]


def _is_plain(node: NodeProto) -> bool:
    """Tell whether the int8 operators support all attributes of a node."""
    plain: dict[str, float] = {"alpha": 1.0, "beta": 1.0, "transA": 0, "axis": 0}
    return all(helper.get_attribute_value(a) == plain[a.name] for a in node.attribute if a.name in plain)


def is_transposed(node: NodeProto) -> bool:
    return any(a.name == "transB" and a.i for a in node.attribute)


def _is_rounded(matrix: Floats, limit: int) -> bool:
    """Tell whether quantization changes nothing, as with a table that another graph shares with its rounded projection."""
    scales = column_scales(matrix, limit)
    steps = (matrix[:, part] / scales[part] for part in _parts(matrix))
    return all(np.abs(each - np.rint(each)).max() < ROUNDED for each in steps)


def _parts(matrix: Floats) -> Iterator[slice]:
    """Return the columns to quantize at a time."""
    step = max(1, AT_ONCE // max(1, matrix.shape[0]))
    return (slice(start, start + step) for start in range(0, matrix.shape[1], step))


def column_scales(matrix: Floats, limit: int = 127) -> Floats:
    """Scale of each column, `[K, N]` -> `[N]`, such that its largest value becomes `limit`."""
    largest = np.maximum(matrix.max(axis=0), -matrix.min(axis=0))
    # A runtime that flushes subnormal numbers treats such a scale as zero; so small a column is zero anyway.
    return np.where(largest > limit * np.finfo(np.float32).tiny, largest / limit, 1.0).astype(np.float32)


def quantize_columns(matrix: Floats, limit: int = 127) -> tuple[NDArray[np.int8], Floats]:
    """Quantize `[K, N]` float32 to int8 in [-limit, limit] with one scale per column: `matrix ~ values * scales`."""
    scales = column_scales(matrix, limit)
    values = np.empty_like(matrix, np.int8)  # in the order of its elements in memory
    for part in _parts(matrix):
        steps = matrix[:, part] / scales[part]
        values[:, part] = np.clip(np.rint(steps, out=steps), -limit, limit, out=steps)
    return values, scales
