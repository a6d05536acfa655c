"""Projections with 4-bit weights."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from numpy.typing import NDArray
from onnx import TensorProto, helper

from triptych_export.graphs.lazy_graph import Graph
from triptych_export.quantization.dynamic import SMALLEST_TABLE
from triptych_export.quantization.four_bit import BLOCK, MIDDLE, Blocks, quantize_blocks, quantize_four_bit
from triptych_serving.runtime.native.library import native_kernels
from triptych_serving.runtime.session import GENERATION, Session

from ....fixtures.onnx_models import kinds, onnx_model, values, whole

INPUTS, OUTPUTS = 80, 24  # the last block is not full


def restore(blocks: Blocks) -> NDArray[np.float32]:
    """Return the floats that blocks stand for, `[OUTPUTS, INPUTS]`."""
    integers = np.stack([blocks.values & 15, blocks.values >> 4], -1).reshape(OUTPUTS, -1, BLOCK).astype(np.float32)
    zeros = np.full(integers.shape[:2], MIDDLE)
    if blocks.zeros is not None:
        zeros = np.stack([blocks.zeros & 15, blocks.zeros >> 4], -1).reshape(OUTPUTS, -1)[:, : integers.shape[1]]
    restored = (integers - zeros[..., None].astype(np.float32)) * blocks.scales[..., None]
    if blocks.added is not None:
        restored += blocks.added.T[..., None]
    return restored.reshape(OUTPUTS, -1)


@pytest.mark.parametrize("lowest", [-1.0, 0.0])
def test_blocks_are_restored_within_half_a_step(lowest: float) -> None:
    matrix = np.random.default_rng(1).uniform(lowest, 2.0, (OUTPUTS, INPUTS)).astype(np.float32)
    blocks = quantize_blocks(matrix)
    assert blocks.added is None
    restored = restore(blocks)[:, :INPUTS]
    steps = np.repeat(blocks.scales, BLOCK, 1)[:, :INPUTS]
    assert (np.abs(restored - matrix) <= 1.5 * steps).all()  # a shrunk range cuts off its ends
    assert np.abs(restored - matrix).mean() < 0.3 * steps.mean()


@pytest.mark.parametrize(("kind", "whole"), [(GGMLQuantizationType.Q4_0, True), (GGMLQuantizationType.Q4_1, False)])
def test_weights_that_were_rounded_to_4_bits_before_are_kept(kind: GGMLQuantizationType, whole: bool) -> None:
    """Also if a block is constant, or its weights have one sign."""
    matrix = np.random.default_rng(3).standard_normal((OUTPUTS, 3 * BLOCK), np.float32)
    matrix[0, :BLOCK], matrix[1, :BLOCK], matrix[2] = 0.0, -0.7, 5.0 + 0.1 * matrix[2]
    given = gguf.dequantize(gguf.quantize(matrix, kind), kind)
    blocks = quantize_blocks(given)
    np.testing.assert_allclose(restore(blocks), given, rtol=1e-5, atol=2e-6)
    assert (blocks.added is None) == whole


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_projection_with_its_bias_becomes_one_operator(transposed: bool, kept: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    depth = 2 * BLOCK if kept else INPUTS
    matrix = rng.standard_normal((depth, OUTPUTS), np.float32)
    if kept:
        matrix = restore(quantize_blocks(matrix.T)).T + np.float32(0.03)
    bias = rng.standard_normal(OUTPUTS, np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])]
    if transposed:
        nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)]
    constants = {"w": matrix.T.copy() if transposed else matrix, "b": bias}
    model = onnx_model(nodes, values({"x": ["rows", depth]}), values({"y": ["rows", OUTPUTS]}), constants)
    made = whole(quantize_four_bit(Graph(model)))
    assert kinds(made) == ["BlockMatMul" if kept else "MatMulNBits"]
    path = tmp_path / "graph.onnx"
    path.write_bytes(made.SerializeToString())
    x = rng.standard_normal((3, depth), np.float32)
    expected = x @ matrix + bias
    for kernels in (None, native_kernels()):
        [found] = Session(path, kernels=kernels, kernel_set=GENERATION).run({"x": x})
        assert np.abs(found - expected).mean() < (0.02 if kept else 0.1) * np.abs(expected).mean()


def test_the_projection_to_the_vocabulary_is_int8_and_shares_the_table() -> None:
    table = np.random.default_rng(4).standard_normal((2 * SMALLEST_TABLE, INPUTS), np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"]),
        helper.make_node("Gather", ["places", "ids"], ["p"]),
        helper.make_node("Add", ["x", "p"], ["s"]),
        helper.make_node("MatMul", ["s", "w"], ["h"]),  # as wide as there are places, which makes it no projection to these
        helper.make_node("MatMul", ["h", "v"], ["i"]),
        helper.make_node("Gemm", ["i", "table"], ["y"], transB=1),
    ]
    places = np.zeros((SMALLEST_TABLE, INPUTS), np.float32)
    wide = np.random.default_rng(5).standard_normal((INPUTS, SMALLEST_TABLE), np.float32)
    constants = {"w": wide, "v": wide.T.copy(), "table": table, "places": places}
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["rows"])
    model = onnx_model(nodes, [ids], values({"y": ["rows", 2 * SMALLEST_TABLE]}), constants)
    made = whole(quantize_four_bit(Graph(model)))
    operators = kinds(made)
    assert (operators.count("MatMulNBits"), operators.count("PerRowMatMul"), operators.count("Transpose")) == (2, 1, 1)
    assert [each.name for each in made.graph.initializer if tuple(each.dims) == table.shape] == ["table_int8"]
