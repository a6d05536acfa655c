"""4-bit weights of decoder-only models: one scale and one zero point for each block of inputs (`MatMulNBits`).

A step over few rows waits for weights, of which there are half as many bytes as in int8. Activations are rounded to 8 bits,
each block of each row for itself. Gathered tables are int8, as `dynamic` makes them.
"""

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
    """Integers of blocks, scales `[N, blocks]` and zero points."""

    values: Bytes
    scales: Floats
    zeros: Bytes


def quantize_blocks(matrix: Floats) -> Blocks:
    """Quantize `[N, K]`, with two integers a byte: `[N, blocks, BLOCK / 2]`, zero points `[N, blocks / 2]`."""
    step = max(1, AT_ONCE // max(1, matrix.shape[1]))
    parts = [_quantize_rows(matrix[start : start + step]) for start in range(0, len(matrix), step)]
    values, zeros = (_pack(np.concatenate([getattr(part, name) for part in parts])) for name in ("values", "zeros"))
    return Blocks(values, np.concatenate([part.scales for part in parts]), zeros)


def _quantize_rows(matrix: Floats) -> Blocks:
    """Quantize `[N, K]` to integers `[N, blocks, BLOCK]`, scales and zero points `[N, blocks]`."""
    blocks = np.pad(matrix, ((0, 0), (0, -matrix.shape[1] % BLOCK))).reshape(len(matrix), -1, BLOCK)
    low, high = np.minimum(blocks.min(-1), 0), np.maximum(blocks.max(-1), 0)
    shape = low.shape
    best = Blocks(np.zeros(blocks.shape, np.uint8), np.ones(shape, np.float32), np.zeros(shape, np.uint8))
    least = np.full(shape, np.inf, np.float32)
    for shrink in SHRINKS:
        scales = np.maximum((high - low) * np.float32(shrink / LEVELS), np.finfo(np.float32).tiny)
        zeros = np.clip(np.rint(-low * np.float32(shrink) / scales), 0, LEVELS)
        values = np.clip(np.rint(blocks / scales[..., None]) + zeros[..., None], 0, LEVELS)
        errors = np.square((values - zeros[..., None]) * scales[..., None] - blocks).sum(-1)
        better = errors < least
        least[better], best.scales[better] = errors[better], scales[better]
        best.values[better], best.zeros[better] = values[better], zeros[better]
    return best


def _pack(values: Bytes) -> Bytes:
    """Put two values of 4 bits into a byte, the first into the lower half."""
    even = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, values.shape[-1] % 2)])
    packed: Bytes = even[..., 0::2] | (even[..., 1::2] << 4).astype(np.uint8)
    return packed
