"""int8 rewriting, checked by running the result."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.helper import make_node

from triptych_export.errors import GraphError
from triptych_export.graphs.input_scales import drop_marks
from triptych_export.graphs.lazy_graph import Graph
from triptych_export.quantization.dynamic import NARROWEST, SMALLEST_TABLE, quantize_columns
from triptych_export.quantization.dynamic import quantize as quantize_graph
from triptych_export.quantization.weight_only import quantize_weights
from triptych_serving.runtime.native.library import native_kernels
from triptych_serving.runtime.session import ATTENTION, Session

from ....fixtures.onnx_models import kinds, onnx_model, values, whole
from ....fixtures.toy import BUNDLE

Floats = NDArray[np.float32]
RNG = np.random.default_rng(5)
INNER, OUTER = 32, 24
WEIGHT = RNG.standard_normal((INNER, OUTER), np.float32)
TURNED = np.ascontiguousarray(WEIGHT.T)
BIAS = RNG.standard_normal(OUTER, np.float32)
TABLE = RNG.standard_normal((SMALLEST_TABLE, INNER), np.float32)
X = RNG.standard_normal((5, INNER), np.float32)
ROWS = np.array([0, 7, SMALLEST_TABLE - 1, 7, 3])
CONSTANTS = {
    "weight": WEIGHT,
    "turned": TURNED,
    "bias": BIAS,
    "table": TABLE,
    "small": TABLE[:100],
    "stack": WEIGHT[None].repeat(2, 0),
    "matrix": np.ones((5, OUTER), np.float32),
    "narrow": np.ascontiguousarray(TURNED[:, : NARROWEST - 1]),
}
# The runtime makes this thread flush subnormal numbers, which hypothesis would notice.
NORMAL_FLOATS = st.floats(-1e6, 1e6, width=32, allow_subnormal=False)
MATMUL = make_node("MatMul", ["x", "weight"], ["y"])
PRODUCT = make_node("MatMul", ["x", "weight"], ["product"])


def quantize(model: ModelProto, weight_bits: int = 8) -> ModelProto:
    return whole(quantize_graph(Graph(model), weight_bits))


def make_graph(nodes: Sequence[NodeProto], outputs: Sequence[str] = ("y",), **constants: NDArray[np.generic]) -> ModelProto:
    """Make a graph with inputs `x` (float) and `rows` (int64) and those of CONSTANTS that its nodes read."""
    read = {name for node in nodes for name in node.input}
    tensors = {name: value for name, value in (CONSTANTS | constants).items() if name in read}
    inputs = [*values({"x": ["n", INNER]}), *values({"rows": ["n"]}, TensorProto.INT64)]
    return onnx_model(nodes, inputs, values(dict.fromkeys(outputs)), tensors)


def run(model: ModelProto, folder: Path, restores_weights: bool = False) -> list[Floats]:
    onnx.save(model, folder / "graph.onnx")
    return Session(folder / "graph.onnx", restores_weights=restores_weights).run({"x": X, "rows": ROWS})


def assert_near(actual: Floats, expected: Floats) -> None:
    """Allow 2 % of the largest value: 8 bits for weights and activations."""
    assert np.abs(actual - expected).max() <= 0.02 * np.abs(expected).max()


@given(arrays(np.float32, (6, 4), elements=NORMAL_FLOATS))
def test_a_quantized_weight_is_off_by_at_most_half_a_scale(matrix: Floats) -> None:
    values, scales = quantize_columns(matrix)
    assert values.dtype == np.int8
    assert values.min() >= -127
    assert np.all(np.abs(matrix - values * scales.astype(np.float64)) <= scales * 0.5001)


@pytest.mark.parametrize("value", [0.0, 1e-38], ids=["zero", "subnormal scale"])
def test_a_column_of_zeros_stays_zero(value: float) -> None:
    values, scales = quantize_columns(np.full((3, 2), value, np.float32))
    assert not values.any()
    assert np.all(scales == 1)


def test_each_column_has_its_own_scale() -> None:
    values, scales = quantize_columns(np.array([[1.0, 1000.0], [-0.5, 10.0]], np.float32))
    assert values.tolist() == [[127, 127], [-64, 1]]
    assert scales == pytest.approx([1 / 127, 1000 / 127])


@pytest.mark.parametrize(
    "nodes",
    [
        [make_node("Gemm", ["x", "turned", "bias"], ["y"], transB=1)],
        [make_node("Gemm", ["x", "weight", "bias"], ["y"])],
        [make_node("Gemm", ["x", "turned"], ["y"], transB=1)],
        [MATMUL],
        [PRODUCT, make_node("Add", ["product", "bias"], ["y"])],
        [PRODUCT, make_node("Add", ["bias", "product"], ["y"])],
    ],
    ids=["transposed Gemm", "Gemm", "Gemm without bias", "MatMul", "MatMul and Add", "Add with the bias first"],
)
def test_a_projection_becomes_one_operator(tmp_path: Path, nodes: list[NodeProto]) -> None:
    model = make_graph(nodes)
    before = model.SerializeToString(deterministic=True)
    quantized = quantize(model)
    assert model.SerializeToString(deterministic=True) == before
    assert kinds(quantized) == ["PerRowGemm" if len(quantized.graph.node[0].input) > 3 else "PerRowMatMul"]
    assert len(quantized.graph.initializer) == len(set(quantized.graph.node[0].input) - {"x", ""})
    [actual], [expected] = run(quantized, tmp_path), run(model, tmp_path)
    assert_near(actual, expected)


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([make_node("Add", ["product", "matrix"], ["y"])], ["y"]),
        ([make_node("Add", ["product", "product"], ["y"])], ["y"]),
        ([make_node("Add", ["product", "bias"], ["y"]), make_node("Relu", ["product"], ["z"])], ["y", "z"]),
        ([make_node("Add", ["product", "bias"], ["y"])], ["y", "product"]),
    ],
    ids=["of a matrix", "of a computed tensor", "to a product read twice", "to an output"],
)
def test_an_addition_that_is_not_a_bias_is_kept(tmp_path: Path, nodes: list[NodeProto], outputs: list[str]) -> None:
    model = make_graph([PRODUCT, *nodes], outputs)
    quantized = quantize(model)
    assert kinds(quantized) == ["PerRowMatMul", *(node.op_type for node in nodes)]
    for actual, expected in zip(run(quantized, tmp_path), run(model, tmp_path), strict=True):
        assert_near(actual, expected)


def test_a_large_table_is_gathered_in_int8_and_stored_once_with_its_tied_projection(tmp_path: Path) -> None:
    nodes = [make_node("Gather", ["table", "rows"], ["y"], axis=0), make_node("Gemm", ["x", "table"], ["z"], transB=1)]
    model = make_graph(nodes, ["y", "z"])
    quantized = quantize(model)
    assert kinds(quantized) == ["Transpose", "Gather", "Cast", "Gather", "Mul", "PerRowMatMul"]
    matrices = [tensor.name for tensor in quantized.graph.initializer if sorted(tensor.dims) == sorted(TABLE.shape)]
    assert matrices == ["table_int8"]
    (y, z), (expected_y, expected_z) = run(quantized, tmp_path), run(model, tmp_path)
    assert np.all(np.abs(y - expected_y) <= np.abs(expected_y).max(axis=1, keepdims=True) / 127 * 0.501)
    assert_near(z, expected_z)


def test_a_rounded_table_keeps_its_integers_in_a_graph_without_its_projection() -> None:
    integers, scales = quantize_columns(TABLE.T, 64)
    gather, product = make_node("Gather", ["table", "rows"], ["y"], axis=0), make_node("MatMul", ["x", "weight"], ["z"])
    for matrix, expected in ((TABLE, False), (np.ascontiguousarray((integers * scales).T), True)):
        quantized = quantize(make_graph([gather, product], ["y", "z"], table=matrix), 7)
        [table] = [tensor for tensor in quantized.graph.initializer if tensor.name == "table_int8"]
        assert np.array_equal(numpy_helper.to_array(table), integers.T) == expected


@pytest.mark.parametrize(
    "node",
    [
        make_node("Gather", ["small", "rows"], ["z"], axis=0),
        make_node("Gather", ["table", "rows"], ["z"], axis=1),
        make_node("Gemm", ["x", "weight"], ["z"], alpha=2.0),
        make_node("MatMul", ["x", "y"], ["z"]),
        make_node("MatMul", ["x", "stack"], ["z"]),
        make_node("MatMul", ["y", "narrow"], ["z"]),
    ],
    ids=["a small table", "columns of a table", "a scaled Gemm", "a product of inputs", "a stack of matrices", "few columns"],
)
def test_nodes_without_an_int8_operator_are_kept(node: NodeProto) -> None:
    assert kinds(quantize(make_graph([MATMUL, node], ["y", "z"]))) == ["PerRowMatMul", node.op_type]


def test_a_graph_may_have_convolutions_alone() -> None:
    nodes = [make_node("Unsqueeze", ["x", "axes"], ["rows_of_one"]), make_node("Conv", ["rows_of_one", "kernel"], ["y"])]
    model = quantize(make_graph(nodes, axes=np.array([1]), kernel=WEIGHT[:4, None, :3].copy()))
    assert {one.name: one.data_type for one in model.graph.initializer}["kernel_int8"] == TensorProto.INT8


def test_graphs_and_bits_that_cannot_be_quantized_are_rejected() -> None:
    with pytest.raises(GraphError, match="no projection by a constant matrix"):
        quantize(make_graph([make_node("Relu", ["x"], ["y"])]))
    with pytest.raises(ValueError, match="weight_bits: 4 is not one of 7, 8"):
        quantize(make_graph([MATMUL]), 4)


@pytest.mark.parametrize("step", [0.0, 0.03], ids=["scale of each row", "calibrated scale"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_rows_do_not_depend_on_each_other(tmp_path: Path, step: float, bias: bool) -> None:
    """Two projections of one input, beside a row of zeros and one that is a thousand times larger."""
    mark = make_node("QuantizedInput", ["x"], ["marked"], domain="triptych", scale=step, zero_point=130)
    given = "marked" if step else "x"
    nodes = [mark] * bool(step) + [make_node("Gemm", [given, "weight"] + ["bias"] * bias, [name]) for name in ("y", "z")]
    model = make_graph(nodes, ["y", "z"])
    model.opset_import.append(helper.make_opsetid("triptych", 1))
    quantized = quantize(model, 7)
    if step:
        assert [kinds(quantized).count(kind) for kind in ("QuantizeLinear", "MatMulIntegerToFloat")] == [1, 2]
    else:
        assert set(kinds(quantized)) == {"PerRowGemm" if bias else "PerRowMatMul"}
    assert "triptych" not in {node.domain for node in quantized.graph.node} | {opset.domain for opset in quantized.opset_import}
    onnx.save(quantized, tmp_path / "graph.onnx")
    session, inputs = Session(tmp_path / "graph.onnx"), np.stack([X[0], X[1], 0 * X[2], 1000 * X[3]])
    y, z = session.run({"x": inputs, "rows": ROWS})
    assert (y == z).all()
    for row in range(4):
        assert (session.run({"x": inputs[row : row + 1], "rows": ROWS})[0] == y[row]).all()
    expected = inputs @ WEIGHT + (BIAS if bias else 0)
    assert_near(y[:2], expected[:2])
    assert_near(y[2:3] + WEIGHT[0], expected[2:3] + WEIGHT[0])
    if not step:
        assert_near(y[3], expected[3])


@pytest.mark.parametrize("kind", ["encoder", "step"])
def test_every_projection_of_an_exported_graph_is_quantized(kind: str) -> None:
    model = onnx.load(BUNDLE / f"{kind}.fp32.onnx")
    projections = sum(node.op_type in ("Gemm", "MatMul") for node in model.graph.node)
    found = kinds(quantize(model))
    assert found.count("PerRowGemm") + found.count("PerRowMatMul") == projections
    assert not {"Gemm", "MatMul"} & set(found)


def test_seven_bits_limit_weights_to_64() -> None:
    values, scales = quantize_columns(WEIGHT, 64)
    assert max(-int(values.min()), int(values.max())) == 64
    assert np.all(np.abs(WEIGHT - values * scales) <= scales * 0.5001)
    weights = {t.name: numpy_helper.to_array(t) for t in quantize(make_graph([MATMUL]), 7).graph.initializer}
    assert np.abs(weights["weight_int8_N"].astype(int)).max() == 64


@pytest.mark.parametrize("native", [True, False], ids=["native", "ONNX Runtime's operators"])
@pytest.mark.parametrize("marked", [True, False], ids=["calibrated", "scale of each row"])
@pytest.mark.parametrize("lengths", [True, False], ids=["bounded", "full"])
def test_attention_projects_in_int8_each_sequence_for_itself(tmp_path: Path, lengths: bool, marked: bool, native: bool) -> None:
    kernels = native_kernels() if native else None
    if native and kernels is None:
        pytest.skip("native kernels are not installed")
    given = "marked" if marked else "pair"
    nodes = [
        make_node("Concat", ["x", "more"], ["rows"], axis=0),
        make_node("Reshape", ["rows", "shape"], ["pair"]),
        make_node("QuantizedInput", ["pair"], ["marked"], domain="triptych", scale=0.03, zero_point=128),
        make_node("Attention", [given, "qkv", "b"] + ["length"] * lengths, ["y"], domain="com.microsoft", num_heads=2),
    ]
    nodes = [node for node in nodes if marked or node.op_type != "QuantizedInput"]
    weight = RNG.standard_normal((INNER, 3 * INNER), np.float32) / np.float32(INNER**0.5)  # small scores
    constants = {"qkv": weight, "b": RNG.standard_normal(3 * INNER, np.float32), "shape": np.array([2, len(X), INNER])}

    def sequences(model: ModelProto) -> list[Floats]:
        onnx.save(model, tmp_path / "graph.onnx")
        return Session(tmp_path / "graph.onnx", kernels=kernels, kernel_set=ATTENTION).run({"x": X})

    first = []
    for size in (1.0, 10.0):  # of the second sequence
        more = size * RNG.standard_normal(X.shape, np.float32)
        model = make_graph(nodes, length=np.array([3, 3], np.int32), more=more, **constants)
        del model.graph.input[1:]
        quantized = quantize(model)
        assert kinds(quantized)[2:] == (["QuantizeLinear", "QAttention"] if marked else ["PerRowAttention"])
        drop_marks(Graph(model))
        [actual], [expected] = sequences(quantized), sequences(model)
        assert np.abs(actual - expected)[0, :3].max() <= 0.1 * np.abs(expected[0, :3]).max()
        first.append(actual[0, :3])
    assert (first[0] == first[1]).all()


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_bytes_are_multiplied_without_quantizing_them_again(tmp_path: Path, bias: bool) -> None:
    """Bytes are centred, so that rounding of weights costs no more although their average is far from zero."""
    nodes = [
        make_node("Gather", ["pixels", "byte_row"], ["taken"]),
        make_node("Cast", ["taken"], ["float"], to=TensorProto.FLOAT),
        make_node("Gemm", ["float", "weight"] + ["bias"] * bias, ["y"]),
    ]
    pixels = np.random.default_rng(1).integers(100, 256, (5, INNER), np.uint8)
    model = make_graph(nodes, pixels=pixels, byte_row=np.arange(5))
    model.graph.value_info.append(helper.make_tensor_value_info("taken", TensorProto.UINT8, [5, INNER]))
    quantized = quantize(model, 7)
    assert kinds(quantized) == ["Gather", "MatMulIntegerToFloat"]
    [actual], [expected] = run(quantized, tmp_path), run(model, tmp_path)
    _, scales = quantize_columns(WEIGHT, 64)
    errors = 0.5 * scales * np.abs(pixels.astype(int) - 128).sum(axis=1, keepdims=True)
    assert np.all(np.abs(actual - expected) <= errors + 1e-2)


@pytest.mark.parametrize("times", [1, 3], ids=["one block", "three blocks"])
@pytest.mark.parametrize("turned", [False, True])
def test_weight_only_int8_keeps_operators_and_activations(tmp_path: Path, times: int, turned: bool) -> None:
    weight = RNG.standard_normal((times * INNER, OUTER), np.float32)
    wide = make_node("Concat", ["x"] * times, ["wide"], axis=1)
    product = make_node("Gemm", ["wide", "first", "bias"], ["y"], transB=int(turned))
    again = make_node("MatMul", ["wide", "second"], ["z"])
    first = np.ascontiguousarray(weight.T) if turned else weight
    model = make_graph([wide, product, again], ("y", "z"), first=first, second=weight)
    rounded = whole(quantize_weights(Graph(model)))
    assert {"Gemm", "MatMul"} < set(kinds(rounded))
    shapes = [list(tensor.dims) for tensor in rounded.graph.initializer if tensor.data_type == TensorProto.INT8]
    assert shapes == [[times * INNER, OUTER]] * 2
    got = run(rounded, tmp_path, restores_weights=True)
    for actual, exact in zip(got, run(model, tmp_path), strict=True):
        assert np.abs(actual - exact).max() > 0
        assert_near(actual, exact)
    restored = restored_weight(rounded, "second", times)
    products = make_graph(
        [wide, product, again], ("y", "z"), first=np.ascontiguousarray(restored.T) if turned else restored, second=restored
    )
    assert all(map(np.array_equal, got, run(products, tmp_path)))  # else the runtime has rounded the activations


def restored_weight(model: ModelProto, name: str, blocks: int) -> Floats:
    """Multiply the int8 blocks of a matrix by their scales."""
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    integers, scales = (constants[f"{name}_restored_N_{part}"] for part in ("int8", "scales"))
    assert scales.shape == (blocks, OUTER)
    return integers.astype(np.float32) * scales.repeat(len(integers) // blocks, axis=0)
