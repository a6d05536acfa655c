"""Norms that are fused with their sum and rounding give what the three operators give."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto
from onnx.helper import make_node

from triptych_export.graphs.lazy_graph import Graph
from triptych_export.graphs.operators import DOMAIN
from triptych_export.quantization.functions import NORM_TO_BYTES, OWN_DOMAIN, fuse_byte_norms
from triptych_serving.runtime.session import Session

from ....fixtures.onnx_models import kinds, onnx_model, values

SIZE = 48
RNG = np.random.default_rng(3)
CONSTANTS = {
    "weight": RNG.integers(-127, 128, (SIZE, SIZE)).astype(np.int8),
    "scales": RNG.random(SIZE, np.float32) / 100,
    "step": np.float32(0.03),
    "zero": np.uint8(121),
    "gamma": RNG.standard_normal(SIZE, np.float32),
    "beta": RNG.standard_normal(SIZE, np.float32),
}
GIVEN = make_node("Neg", ["given"], ["x"])
ROUNDED = make_node("QuantizeLinear", ["x", "step", "zero"], ["x_bytes"])
PRODUCT = make_node("MatMulIntegerToFloat", ["x_bytes", "weight", "step", "scales", "zero"], ["y"], domain=DOMAIN)
NORM = [
    make_node("Add", ["x", "y"], ["sum"]),
    make_node("LayerNormalization", ["sum", "gamma", "beta"], ["normed"], name="norm", epsilon=1e-6),
    make_node("QuantizeLinear", ["normed", "step", "zero"], ["bytes"]),
]


def graph_of(nodes: list[onnx.NodeProto]) -> ModelProto:
    outputs = [*values({"sum": None}), *values({"bytes": None}, TensorProto.UINT8)]
    outputs += values({"other": None}) if any("other" in node.output for node in nodes) else []
    return onnx_model(nodes, values({"given": [None, None, SIZE]}), outputs, CONSTANTS)


def test_results_are_the_same(tmp_path: Path) -> None:
    model = graph_of([GIVEN, ROUNDED, PRODUCT, *NORM])
    onnx.save(model, tmp_path / "apart.onnx")
    fuse_byte_norms(Graph(model))
    assert kinds(model) == ["Neg", "QuantizeLinear", "MatMulIntegerToFloat", NORM_TO_BYTES]
    assert [(one.domain, one.name) for one in model.functions] == [(OWN_DOMAIN, NORM_TO_BYTES)]
    onnx.save(model, tmp_path / "fused.onnx")
    x = 3 * RNG.standard_normal((2, 5, SIZE), np.float32)
    for found, expected in zip(
        *(Session(tmp_path / f"{name}.onnx").run({"given": x}) for name in ("fused", "apart")), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "nodes",
    [
        [GIVEN, ROUNDED, PRODUCT, *NORM, make_node("Relu", ["normed"], ["other"])],  # another reader needs the floats
        [GIVEN, make_node("Relu", ["x"], ["y"]), *NORM],  # may be of another size
        [GIVEN, make_node("Identity", ["beta"], ["y"]), *NORM],
    ],
)
def test_other_norms_stay_as_they_are(nodes: list[onnx.NodeProto]) -> None:
    model = graph_of(nodes)
    fuse_byte_norms(Graph(model))
    assert kinds(model) == [node.op_type for node in nodes]
    assert not model.functions
