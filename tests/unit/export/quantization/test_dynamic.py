"""int8 rewriting, shown by running the result."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from triptych_export.errors import GraphError
from triptych_export.graphs.lazy_graph import Graph
from triptych_export.quantization.dynamic import NARROWEST, SMALLEST_TABLE, quantize_columns
from triptych_export.quantization.dynamic import quantize as quantize_graph
from triptych_serving.runtime.session import Session

from ....fixtures.toy import BUNDLE

RNG = np.random.default_rng(5)
INNER, OUTER = 32, 24
WEIGHT = RNG.standard_normal((INNER, OUTER), np.float32)
TURNED = np.ascontiguousarray(WEIGHT.T)
BIAS = RNG.standard_normal(OUTER, np.float32)
TABLE = RNG.standard_normal((SMALLEST_TABLE, INNER), np.float32)
X = RNG.standard_normal((5, INNER), np.float32)
ROWS = np.array([0, 7, SMALLEST_TABLE - 1, 7, 3])


# The runtime has this thread flush subnormal numbers, which hypothesis would notice.
NORMAL_FLOATS = st.floats(-1e6, 1e6, width=32, allow_subnormal=False)


def quantize(model: ModelProto, weight_bits: int = 8) -> ModelProto:
    return quantize_graph(Graph.of(model), weight_bits).whole()


def make_graph(nodes: Sequence[NodeProto], outputs: Sequence[str] = ("y",), **constants: NDArray[np.float32]) -> ModelProto:
    """Inputs `x` (float) and `rows` (int64); rank and size of the outputs are free."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", INNER]),
            helper.make_tensor_value_info("rows", TensorProto.INT64, ["n"]),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run(model: ModelProto, folder: Path) -> list[NDArray[np.float32]]:
    onnx.save(model, folder / "graph.onnx")
    return Session(folder / "graph.onnx").run({"x": X, "rows": ROWS})


def kinds(model: ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def assert_near(actual: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    """Within 2 % of the largest value: 8 bits for the weights, 8 for what they meet."""
    assert np.abs(actual - expected).max() <= 0.02 * np.abs(expected).max()


@settings(max_examples=50)
@given(arrays(np.float32, (6, 4), elements=NORMAL_FLOATS))
def test_a_quantized_weight_is_off_by_half_a_scale_at_most(matrix: NDArray[np.float32]) -> None:
    values, scales = quantize_columns(matrix)
    assert values.dtype == np.int8
    assert values.min() >= -127
    assert np.all(np.abs(matrix - values * scales.astype(np.float64)) <= scales * 0.5001)


@pytest.mark.parametrize("value", [0.0, 1e-38], ids=["zero", "next to nothing"])
def test_a_column_of_zeros_stays_zero(value: float) -> None:
    values, scales = quantize_columns(np.full((3, 2), value, np.float32))
    assert not values.any()
    assert np.all(scales == 1)


def test_columns_have_scales_of_their_own() -> None:
    values, scales = quantize_columns(np.array([[1.0, 1000.0], [-0.5, 10.0]], np.float32))
    assert values.tolist() == [[127, 127], [-64, 1]]
    assert scales == pytest.approx([1 / 127, 1000 / 127])


PROJECTIONS = {
    "Gemm with bias": (
        [helper.make_node("Gemm", ["x", "turned", "bias"], ["y"], transB=1)],
        {"turned": TURNED, "bias": BIAS},
    ),
    "Gemm the right way round": ([helper.make_node("Gemm", ["x", "weight", "bias"], ["y"])], {"weight": WEIGHT, "bias": BIAS}),
    "Gemm without bias": ([helper.make_node("Gemm", ["x", "turned"], ["y"], transB=1)], {"turned": TURNED}),
    "MatMul": ([helper.make_node("MatMul", ["x", "weight"], ["y"])], {"weight": WEIGHT}),
    "MatMul and Add": (
        [helper.make_node("MatMul", ["x", "weight"], ["product"]), helper.make_node("Add", ["product", "bias"], ["y"])],
        {"weight": WEIGHT, "bias": BIAS},
    ),
    "Add with the bias first": (
        [helper.make_node("MatMul", ["x", "weight"], ["product"]), helper.make_node("Add", ["bias", "product"], ["y"])],
        {"weight": WEIGHT, "bias": BIAS},
    ),
}


@pytest.mark.parametrize(("nodes", "constants"), PROJECTIONS.values(), ids=PROJECTIONS)
def test_a_projection_becomes_one_operator(
    tmp_path: Path, nodes: list[NodeProto], constants: dict[str, NDArray[np.float32]]
) -> None:
    model = make_graph(nodes, **constants)
    quantized = quantize(model)
    assert kinds(quantized) == ["DynamicQuantizeMatMul"]
    [actual], [expected] = run(quantized, tmp_path), run(model, tmp_path)
    assert_near(actual, expected)


def test_the_given_graph_is_not_changed() -> None:
    model = make_graph(*PROJECTIONS["MatMul and Add"][:1], **PROJECTIONS["MatMul and Add"][1])
    before = model.SerializeToString(deterministic=True)
    quantize(model)
    assert model.SerializeToString(deterministic=True) == before


def test_weights_that_nobody_reads_any_more_are_gone() -> None:
    quantized = quantize(make_graph(PROJECTIONS["Gemm with bias"][0], **PROJECTIONS["Gemm with bias"][1]))
    assert {t.name: t.data_type for t in quantized.graph.initializer} == {
        "bias": TensorProto.FLOAT,
        "turned_int8_T": TensorProto.INT8,
        "turned_scale": TensorProto.FLOAT,
    }


ADDITIONS = {
    "of a matrix": ([helper.make_node("Add", ["product", "matrix"], ["y"])], ["y"]),
    "of what was computed": ([helper.make_node("Add", ["product", "product"], ["y"])], ["y"]),
    "to a product read twice": (
        [helper.make_node("Add", ["product", "bias"], ["y"]), helper.make_node("Relu", ["product"], ["z"])],
        ["y", "z"],
    ),
    "to a product that is an output": ([helper.make_node("Add", ["product", "bias"], ["y"])], ["y", "product"]),
}


@pytest.mark.parametrize(("nodes", "outputs"), ADDITIONS.values(), ids=ADDITIONS)
def test_an_addition_that_is_no_bias_is_left_alone(tmp_path: Path, nodes: list[NodeProto], outputs: list[str]) -> None:
    constants = {"weight": WEIGHT, "bias": BIAS, "matrix": np.ones((5, OUTER), np.float32)}
    model = make_graph([helper.make_node("MatMul", ["x", "weight"], ["product"]), *nodes], outputs, **constants)
    quantized = quantize(model)
    assert kinds(quantized) == ["DynamicQuantizeMatMul", *(node.op_type for node in nodes)]
    for actual, expected in zip(run(quantized, tmp_path), run(model, tmp_path), strict=True):
        assert_near(actual, expected)


def test_a_large_table_is_gathered_in_int8_and_may_be_a_projection_too(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gather", ["table", "rows"], ["y"], axis=0),
        helper.make_node("Gemm", ["x", "table"], ["z"], transB=1),
    ]
    model = make_graph(nodes, ["y", "z"], table=TABLE)
    quantized = quantize(model)
    assert kinds(quantized) == ["Gather", "Cast", "Gather", "Mul", "DynamicQuantizeMatMul"]
    (y, z), (expected_y, expected_z) = run(quantized, tmp_path), run(model, tmp_path)
    assert np.all(np.abs(y - expected_y) <= np.abs(expected_y).max(axis=1, keepdims=True) / 127 * 0.501)
    assert_near(z, expected_z)


LEFT_ALONE = {
    "a small table": helper.make_node("Gather", ["small", "rows"], ["z"], axis=0),
    "columns of a table": helper.make_node("Gather", ["table", "rows"], ["z"], axis=1),
    "a scaled Gemm": helper.make_node("Gemm", ["x", "weight"], ["z"], alpha=2.0),
    "a product of inputs": helper.make_node("MatMul", ["x", "y"], ["z"]),
    "a stack of matrices": helper.make_node("MatMul", ["x", "stack"], ["z"]),
}


@pytest.mark.parametrize("node", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_what_int8_operators_cannot_do_stays(node: NodeProto) -> None:
    constants = {"weight": WEIGHT, "table": TABLE, "small": TABLE[:100], "stack": WEIGHT[None].repeat(2, 0)}
    quantized = quantize(make_graph([helper.make_node("MatMul", ["x", "weight"], ["y"]), node], ["y", "z"], **constants))
    assert kinds(quantized) == ["DynamicQuantizeMatMul", node.op_type]


def test_a_graph_without_projections_is_refused() -> None:
    with pytest.raises(GraphError, match="no projection by a constant matrix"):
        quantize(make_graph([helper.make_node("Relu", ["x"], ["y"])]))


@pytest.mark.parametrize("kind", ["encoder", "step"])
def test_no_projection_of_an_exported_graph_stays_in_float(kind: str) -> None:
    model = onnx.load(BUNDLE / f"{kind}.fp32.onnx")
    projections = sum(node.op_type in ("Gemm", "MatMul") for node in model.graph.node)
    found = kinds(quantize(model))
    assert found.count("DynamicQuantizeMatMul") == projections
    assert not {"Gemm", "MatMul"} & set(found)


MATMUL = ([helper.make_node("MatMul", ["x", "weight"], ["y"])],)


def test_seven_bits_stay_within_what_never_saturates() -> None:
    values, scales = quantize_columns(WEIGHT, 64)
    assert max(-int(values.min()), int(values.max())) == 64
    assert np.all(np.abs(WEIGHT - values * scales) <= scales * 0.5001)
    weights = {t.name: numpy_helper.to_array(t) for t in quantize(make_graph(*MATMUL, weight=WEIGHT), 7).graph.initializer}
    assert np.abs(weights["weight_int8_N"].astype(int)).max() == 64


def test_another_number_of_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="weight_bits: 4 is not one of 7, 8"):
        quantize(make_graph(*MATMUL, weight=WEIGHT), 4)


def test_narrow_projections_stay() -> None:
    nodes = [*MATMUL[0], helper.make_node("MatMul", ["y", "narrow"], ["z"])]
    quantized = quantize(make_graph(nodes, ["z"], weight=WEIGHT, narrow=np.ascontiguousarray(TURNED[:, : NARROWEST - 1])))
    assert kinds(quantized) == ["DynamicQuantizeMatMul", "MatMul"]


@pytest.mark.parametrize("lengths", [True, False], ids=["bounded", "full"])
def test_attention_projects_in_int8(tmp_path: Path, lengths: bool) -> None:
    weight, bias = RNG.standard_normal((INNER, 3 * INNER), np.float32), RNG.standard_normal(3 * INNER, np.float32)
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axis"], ["row"]),
        helper.make_node("Attention", ["row", "qkv", "b"] + ["length"] * lengths, ["y"], domain="com.microsoft", num_heads=2),
    ]
    model = make_graph(nodes, qkv=weight, b=bias)
    model.graph.initializer.append(numpy_helper.from_array(np.array([0]), "axis"))
    model.graph.initializer.append(numpy_helper.from_array(np.array([3], np.int32), "length"))
    quantized = quantize(model)
    assert kinds(quantized) == ["Unsqueeze", "DynamicQuantizeLinear", "QAttention"]
    [actual], [expected] = run(quantized, tmp_path), run(model, tmp_path)
    assert np.abs(actual - expected).max() <= 0.1 * np.abs(expected).max()


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_bytes_are_multiplied_as_they_are(tmp_path: Path, bias: bool) -> None:
    """Their average is far from zero, and yet a weight's rounding costs no more than with centred numbers."""
    nodes = [
        helper.make_node("Gather", ["pixels", "byte_row"], ["taken"]),
        helper.make_node("Cast", ["taken"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Gemm", ["float", "weight"] + ["bias"] * bias, ["y"]),
    ]
    model = make_graph(nodes, weight=WEIGHT, bias=BIAS)
    pixels = np.random.default_rng(1).integers(100, 256, (5, INNER), np.uint8)
    model.graph.initializer.append(numpy_helper.from_array(pixels, "pixels"))
    model.graph.initializer.append(numpy_helper.from_array(np.arange(5), "byte_row"))
    model.graph.value_info.append(helper.make_tensor_value_info("taken", TensorProto.UINT8, [5, INNER]))
    quantized = quantize(model, 7)
    assert kinds(quantized) == ["Gather", "MatMulIntegerToFloat"]
    [actual], [expected] = run(quantized, tmp_path), run(model, tmp_path)
    _, scales = quantize_columns(WEIGHT, 64)
    assert np.all(
        np.abs(actual - expected) <= 0.5 * scales * np.abs(pixels.astype(int) - 128).sum(axis=1, keepdims=True) + 1e-2
    )
