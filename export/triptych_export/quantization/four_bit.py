"""4-bit weights of decoder-only models: one scale and one zero point for each block of inputs (`MatMulNBits`).

A step over few rows waits for weights, of which there are little more than half as many bytes as in int8. Activations are
rounded to 8 bits, each block of each row for itself. Gathered tables and the projection to the vocabulary are int8, as
`dynamic` makes them.

Weights that were rounded to blocks of 4 bits before, as those of many GGUF files, are kept as they are: the zero points of
their blocks are floats, since they need not be whole numbers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, helper

from triptych_export.graphs.lazy_graph import Graph
from triptych_export.graphs.operators import DOMAIN
from triptych_export.quantization.dynamic import AT_ONCE, LARGEST, Floats, Quantizer, is_transposed

BLOCK = 32  # inputs of a column that share a scale
LEVELS = 15
SHRINKS = (1.0, 0.95, 0.9, 0.85, 0.8)  # of a block's range; the one with the smallest square error is taken
STEPS = range(LEVELS, 4, -1)  # from the lowest to the highest weight of a block that was rounded before; likewise
SAMPLE = 256  # columns by which a matrix is recognized as rounded before
KEPT = 0.01  # share of the square error that is left then
INT8_ACTIVATIONS = 4  # an accuracy level of the operator
Bytes = NDArray[np.uint8]


def quantize_four_bit(graph: Graph) -> Graph:
    """Copy a float32 graph with projections in 4 bits; raises GraphError if the graph has no projection to quantize."""
    result = graph.copy()
    _FourBitQuantizer(result, LARGEST[8]).run()
    return result


class _FourBitQuantizer(Quantizer):
    """Quantizer of the same projections as dynamic int8."""

    def _project(self, node: NodeProto, absorbed: set[str]) -> list[NodeProto]:
        matrix, transposed = node.input[1], is_transposed(node)
        columns, rows = self._shape(matrix) if transposed else reversed(self._shape(matrix))
        if any(self._is_table(other) and self._shape(other.input[0])[0] == columns for other in self.graph.node):
            return super()._project(node, absorbed)  # to the vocabulary
        bias, output = self._biased(node, absorbed)
        names = [f"{matrix}_{part}" for part in ("four_bit", "block_scales", "block_zeros")]
        if names[0] not in self.added:
            parts = quantize_blocks(self._values(matrix) if transposed else self._values(matrix).T)
            arrays: tuple[NDArray[Any], ...] = parts.values, parts.scales, parts.zeros
            for name, array in zip(names, arrays, strict=True):
                self._constant(name, array)
        inputs = [node.input[0], *names, *(["", bias] if bias else [])]
        sizes: dict[str, Any] = {"K": rows, "N": columns, "bits": 4, "block_size": BLOCK, "accuracy_level": INT8_ACTIVATIONS}
        return [helper.make_node("MatMulNBits", inputs, [output], name=f"{node.name}_int4", domain=DOMAIN, **sizes)]


@dataclass(frozen=True)
class Blocks:
    """Integers of blocks, scales `[N, blocks]` and zero points: integers like the first, or floats `[N, blocks]`."""

    values: Bytes
    scales: Floats
    zeros: Bytes | Floats


def quantize_blocks(matrix: Floats) -> Blocks:
    """Quantize `[N, K]`, with two integers a byte: `[N, blocks, BLOCK / 2]`, zero points `[N, blocks / 2]`."""
    sample = matrix[:: -(-len(matrix) // SAMPLE)]
    (_, rounded), (_, error) = _quantize_rows(sample, _steps), _quantize_rows(sample, _shrinks)
    kept = rounded <= KEPT * error
    step = max(1, AT_ONCE // max(1, matrix.shape[1]))
    parts = [
        _quantize_rows(matrix[start : start + step], _steps if kept else _shrinks)[0] for start in range(0, len(matrix), step)
    ]
    values, scales, zeros = (np.concatenate([getattr(part, name) for part in parts]) for name in ("values", "scales", "zeros"))
    return Blocks(_pack(values), scales, zeros if kept else _pack(zeros.astype(np.uint8)))


def _shrinks(low: Floats, high: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Return scales and whole zero points of blocks with such a lowest and highest weight, for each possible shrink."""
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    for shrink in SHRINKS:
        scales = np.maximum((high - low) * np.float32(shrink / LEVELS), np.finfo(np.float32).tiny)
        yield scales, np.clip(np.rint(-low * np.float32(shrink) / scales), 0, LEVELS).astype(np.float32)


def _steps(low: Floats, high: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Return scales and zero points of blocks that were rounded before, for each possible number of steps."""
    for steps in STEPS:
        scales: Floats = np.where(high > low, (high - low) / np.float32(steps), np.abs(low)).astype(np.float32)
        scales = np.maximum(scales, np.finfo(np.float32).tiny)
        yield scales, -low / scales


def _quantize_rows(
    matrix: Floats, choices: Callable[[Floats, Floats], Iterator[tuple[Floats, Floats]]]
) -> tuple[Blocks, float]:
    """Quantize `[N, K]` to integers `[N, blocks, BLOCK]`, scales and zero points `[N, blocks]`, with their square error."""
    blocks = np.pad(matrix, ((0, 0), (0, -matrix.shape[1] % BLOCK)), mode="edge").reshape(len(matrix), -1, BLOCK)
    shape = blocks.shape[:2]
    best = Blocks(np.zeros(blocks.shape, np.uint8), np.ones(shape, np.float32), np.zeros(shape, np.float32))
    least = np.full(shape, np.inf, np.float32)
    for scales, zeros in choices(blocks.min(-1), blocks.max(-1)):
        values = np.clip(np.rint(blocks / scales[..., None] + zeros[..., None]), 0, LEVELS)
        errors = np.square((values - zeros[..., None]) * scales[..., None] - blocks).sum(-1)
        better = errors < least
        least[better], best.scales[better] = errors[better], scales[better]
        best.values[better], best.zeros[better] = values[better], zeros[better]
    return best, float(least.sum())


def _pack(values: Bytes) -> Bytes:
    """Put two values of 4 bits into a byte, the first into the lower half."""
    even = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, values.shape[-1] % 2)])
    packed: Bytes = even[..., 0::2] | (even[..., 1::2] << 4).astype(np.uint8)
    return packed
