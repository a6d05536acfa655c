"""Projections with 4-bit weights."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from triptych_export.graphs.lazy_graph import Graph
from triptych_export.quantization.four_bit import BLOCK, quantize_blocks, quantize_four_bit
from triptych_serving.runtime.session import Session

from ....fixtures.onnx_models import kinds, onnx_model, values, whole

INPUTS, OUTPUTS = 80, 24  # the last block is not full


@pytest.mark.parametrize("lowest", [-1.0, 0.0])
def test_blocks_are_restored_within_half_a_step(lowest: float) -> None:
    matrix = np.random.default_rng(1).uniform(lowest, 2.0, (OUTPUTS, INPUTS)).astype(np.float32)
    blocks = quantize_blocks(matrix)
    integers = np.stack([blocks.values & 15, blocks.values >> 4], -1).reshape(OUTPUTS, -1, BLOCK).astype(np.float32)
    zeros = np.stack([blocks.zeros & 15, blocks.zeros >> 4], -1).reshape(OUTPUTS, -1)[:, : integers.shape[1]]
    restored = ((integers - zeros[..., None]) * blocks.scales[..., None]).reshape(OUTPUTS, -1)[:, :INPUTS]
    steps = np.repeat(blocks.scales, BLOCK, 1)[:, :INPUTS]
    assert (np.abs(restored - matrix) <= 1.5 * steps).all()  # a shrunk range cuts off its ends
    assert np.abs(restored - matrix).mean() < 0.3 * steps.mean()


@pytest.mark.parametrize("transposed", [False, True])
def test_a_projection_with_its_bias_becomes_one_operator(transposed: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    matrix, bias = rng.standard_normal((INPUTS, OUTPUTS), np.float32), rng.standard_normal(OUTPUTS, np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])]
    if transposed:
        nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)]
    constants = {"w": matrix.T.copy() if transposed else matrix, "b": bias}
    model = onnx_model(nodes, values({"x": ["rows", INPUTS]}), values({"y": ["rows", OUTPUTS]}), constants)
    made = whole(quantize_four_bit(Graph(model)))
    assert kinds(made) == ["MatMulNBits"]
    path = tmp_path / "graph.onnx"
    path.write_bytes(made.SerializeToString())
    x = rng.standard_normal((3, INPUTS), np.float32)
    [found] = Session(path).run({"x": x})
    expected = x @ matrix + bias
    assert np.abs(found - expected).mean() < 0.1 * np.abs(expected).mean()
