"""4-bit weights of decoder-only models: one scale and one zero point for each block of inputs (`MatMulNBits`).

A step over few rows waits for weights, of which there are little more than half as many bytes as in int8. Activations are
rounded to 8 bits, each block of each row for itself. Gathered tables and the projection to the vocabulary are int8, as
`dynamic` makes them.

Weights that were rounded to blocks of 4 bits before, by `calibration` or in many GGUF files, are kept as they are. If zero
points are no whole numbers, something is added to all weights of a block instead (`functions.block_product`).
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
from triptych_export.quantization.functions import FOUR_BIT_BLOCK, INT8_ACTIVATIONS, add_function, block_product

BLOCK = FOUR_BIT_BLOCK
LEVELS = 15
MIDDLE = 8  # MatMulNBits' zero point, if none is given
SHRINKS = (1.0, 0.95, 0.9, 0.85, 0.8)  # of a block's range; the one with the smallest square error is taken
STEPS = range(1, LEVELS + 1)  # from the lowest to the highest weight of a block that was rounded before; the fewest are taken
SAMPLE = 256  # columns by which a matrix is recognized as rounded before
KEPT = 0.01  # share of the square error that is left then
WHOLE = 1e-3  # largest distance of a zero point from a whole number
EXACT = 1e-12  # share of a block's energy below which an error is one of float32
Bytes = NDArray[np.uint8]


def quantize_four_bit(graph: Graph) -> Graph:
    """Copy a float32 graph with projections in 4 bits; raises GraphError if the graph has no projection to quantize."""
    result = graph.copy()
    _FourBitQuantizer(result, LARGEST[8]).run()
    return result


class _FourBitQuantizer(Quantizer):
    """Quantizer of the same projections as dynamic int8."""

    def __init__(self, whole: Graph, largest: int) -> None:
        super().__init__(whole, largest)
        self.vocabulary = max((self._shape(node.input[0])[0] for node in self.graph.node if self._is_table(node)), default=0)

    def _project(self, node: NodeProto, absorbed: set[str]) -> list[NodeProto]:
        matrix, transposed = node.input[1], is_transposed(node)
        columns, rows = self._shape(matrix) if transposed else reversed(self._shape(matrix))
        if columns == self.vocabulary:
            return super()._project(node, absorbed)
        bias, output = self._biased(node, absorbed)
        values, scales, zeros, added = (
            f"{matrix}_{part}" for part in ("four_bit", "block_scales", "block_zeros", "block_added")
        )
        if values not in self.added:
            parts = quantize_blocks(self._values(matrix) if transposed else self._values(matrix).T)
            arrays: dict[str, NDArray[Any] | None] = {
                values: parts.values,
                scales: parts.scales,
                zeros: parts.zeros,
                added: parts.added,
            }
            for name, array in arrays.items():
                if array is not None:
                    self._constant(name, array)
        sizes: dict[str, Any] = {"K": rows, "N": columns}
        if added in self.added:
            function = block_product()
            add_function(self.whole.model, function)
            inputs = [node.input[0], values, scales, added, *([bias] if bias else [])]
            return [helper.make_node(function.name, inputs, [output], domain=function.domain, **sizes)]
        inputs = [node.input[0], values, scales, zeros, *(["", bias] if bias else [])]
        sizes |= {"bits": 4, "block_size": BLOCK, "accuracy_level": INT8_ACTIVATIONS}
        return [helper.make_node("MatMulNBits", inputs, [output], name=f"{node.name}_int4", domain=DOMAIN, **sizes)]


@dataclass(frozen=True)
class Blocks:
    """Integers of blocks, two in a byte, and scales `[N, blocks]`, with zero points or what is added to a block's weights."""

    values: Bytes
    scales: Floats
    zeros: Bytes | None  # None: MIDDLE
    added: Floats | None  # [blocks, N]


def quantize_blocks(matrix: Floats) -> Blocks:
    """Quantize `[N, K]` to integers `[N, blocks, BLOCK / 2]`, and zero points `[N, blocks / 2]` or summands."""
    step = max(1, AT_ONCE // max(1, matrix.shape[1]))
    choices = _steps if is_rounded(matrix) else _shrinks
    parts = [_quantize_rows(matrix[start : start + step], choices) for start in range(0, len(matrix), step)]
    values, scales, zeros = (np.concatenate([getattr(part, name) for part in parts]) for name in ("values", "scales", "zeros"))
    whole = np.rint(zeros)
    shift = np.clip(-whole, 0, LEVELS).astype(np.uint8)  # of blocks whose weights have one sign: zero points are not below 0
    shifted = values + shift[..., None]
    if np.abs(zeros - whole).max() <= WHOLE and max(shifted.max(), whole.max()) <= LEVELS:
        return Blocks(_pack(shifted), scales, _pack((whole + shift).astype(np.uint8)), None)
    return Blocks(_pack(values), scales, None, np.ascontiguousarray(((MIDDLE - zeros) * scales).T))


def is_rounded(matrix: Floats) -> bool:
    """Tell, by a part of `[N, K]`, whether each block has at most 16 different weights, at equal distances."""
    if matrix.shape[1] % BLOCK:
        return False
    sample = matrix[:: -(-len(matrix) // SAMPLE)]
    error, rounded = (_quantize_rows(sample, choices).error for choices in (_shrinks, _steps))
    return rounded <= KEPT * error


def round_blocks(matrix: Floats) -> tuple[Floats, Floats, Floats]:
    """Round `[N, K]`, K a multiple of BLOCK; returns the result, and scales and zero points `[N, blocks]`."""
    found = _quantize_rows(matrix, _shrinks)
    restored = (found.values - found.zeros[..., None]) * found.scales[..., None]
    return restored.reshape(matrix.shape), found.scales, found.zeros


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


@dataclass(frozen=True)
class _Rounded:
    """Integers `[N, blocks, BLOCK]`, scales and zero points `[N, blocks]`, and their square error."""

    values: Bytes
    scales: Floats
    zeros: Floats
    error: float


def _quantize_rows(matrix: Floats, choices: Callable[[Floats, Floats], Iterator[tuple[Floats, Floats]]]) -> _Rounded:
    """Quantize `[N, K]` with the best of several scales and zero points for each block."""
    blocks = np.pad(matrix, ((0, 0), (0, -matrix.shape[1] % BLOCK)), mode="edge").reshape(len(matrix), -1, BLOCK)
    shape = blocks.shape[:2]
    best, scale, zero = np.zeros(blocks.shape, np.uint8), np.ones(shape, np.float32), np.zeros(shape, np.float32)
    least, smallest = np.full(shape, np.inf, np.float32), EXACT * np.square(blocks).sum(-1)
    for scales, zeros in choices(blocks.min(-1), blocks.max(-1)):
        values = np.clip(np.rint(blocks / scales[..., None] + zeros[..., None]), 0, LEVELS)
        errors = np.square((values - zeros[..., None]) * scales[..., None] - blocks).sum(-1)
        errors[errors <= smallest] = 0
        better = errors < least
        least[better], scale[better] = errors[better], scales[better]
        best[better], zero[better] = values[better], zeros[better]
    return _Rounded(best, scale, zero, float(least.sum()))


def _pack(values: Bytes) -> Bytes:
    """Put two values of 4 bits into a byte, the first into the lower half."""
    even = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, values.shape[-1] % 2)])
    packed: Bytes = even[..., 0::2] | (even[..., 1::2] << 4).astype(np.uint8)
    return packed
