"""Fusion of residual sums with norms."""

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper

from triptych_export.graphs.lazy_graph import Graph
from triptych_export.graphs.skip_norms import fuse_skip_norms

from ....fixtures.onnx_models import kinds, onnx_model, values

WIDTH = 8
Floats = NDArray[np.float32]


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    return helper.make_node(kind, inputs.split(), outputs.split(), name=f"node_{outputs}", **attributes)


def model(*nodes: NodeProto, outputs: str, shapes: dict[str, list[Any]] | None = None) -> ModelProto:
    """Make a graph with inputs `x` and `y` `[B, T, 8]` and weights `w` `[8, 8]`, `b`, `g` and `h` `[8]`."""
    chance = np.random.default_rng(1)
    weights = {name: chance.standard_normal((WIDTH,) * (2 if name == "w" else 1)).astype(np.float32) for name in "wbgh"}
    full = ["B", "T", WIDTH]
    known = {name: full for each in nodes for name in each.output} | {"x": full, "y": full} | (shapes or {})
    info = {value.name: value for value in values(known)}
    names = outputs.split()
    made = onnx_model(nodes, [info["x"], info["y"]], [info[name] for name in names], weights)
    made.graph.value_info.extend(value for name, value in info.items() if name not in ("x", "y", *names))
    return made


def run(graph: ModelProto) -> list[Floats]:
    chance = np.random.default_rng(2)
    feeds = {value.name: chance.standard_normal((2, 3, WIDTH)).astype(np.float32) for value in graph.graph.input}
    session = ort.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    found: list[Floats] = session.run(None, feeds)
    return found


NORM = node("LayerNormalization", "s g h", "n", axis=-1, epsilon=1e-5)
SECOND_NORM = node("LayerNormalization", "t g h", "m", axis=-1, epsilon=1e-5)
RMS_NORM = node("SimplifiedLayerNormalization", "s g", "n", axis=-1, epsilon=1e-6, stash_type=1)
SUM = node("Add", "x y", "s")
BIASED = (node("MatMul", "y w", "p"), node("Add", "p b", "q"), node("Add", "x q", "s"))
SKIP, SKIP_RMS = "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"
CASES = {
    "post-norm": (model(SUM, NORM, outputs="n"), [SKIP]),
    "pre-norm": (model(SUM, NORM, node("Mul", "n s", "z"), outputs="z"), [SKIP, "Mul"]),
    "a sum that is an output": (model(SUM, NORM, outputs="n s"), [SKIP]),
    "a projection's bias": (model(*BIASED, NORM, outputs="n s"), ["MatMul", SKIP]),
    "a bias on the other side": (model(*BIASED[:2], node("Add", "q x", "s"), NORM, outputs="n"), ["MatMul", SKIP]),
    "a biased projection with other readers": (model(*BIASED, NORM, outputs="n q"), ["MatMul", "Add", SKIP]),
    "a projection's bias before a norm without bias": (
        model(*BIASED, node("LayerNormalization", "s g", "n", axis=-1, epsilon=1e-5), outputs="n s"),
        ["MatMul", SKIP],
    ),
    "consecutive residuals": (model(SUM, NORM, node("Add", "s n", "t"), SECOND_NORM, outputs="m t"), [SKIP, SKIP]),
    "two norms of one sum": (
        model(SUM, NORM, node("LayerNormalization", "s h g", "m", axis=-1, epsilon=1e-5), outputs="n m"),
        [SKIP, "LayerNormalization"],
    ),
    "rms norms": (model(SUM, RMS_NORM, outputs="n s"), [SKIP_RMS]),
    "a projection's bias before an rms norm": (model(*BIASED, RMS_NORM, outputs="n s"), ["MatMul", SKIP_RMS]),
    "a constant is not a residual": (model(node("Add", "x b", "s"), NORM, outputs="n"), ["Add", "LayerNormalization"]),
    "no sum": (model(node("Mul", "x y", "s"), NORM, outputs="n"), ["Mul", "LayerNormalization"]),
}


@pytest.mark.parametrize(("whole", "expected"), CASES.values(), ids=CASES)
def test_fused_graphs_give_the_same_results(whole: ModelProto, expected: list[str]) -> None:
    fused = fuse_skip_norms(Graph(whole).copy()).model
    assert kinds(fused) == expected
    for found, known in zip(run(fused), run(whole), strict=True):
        np.testing.assert_allclose(found, known, atol=1e-5)


@pytest.mark.parametrize("shape", [[1, "T", WIDTH], ["T", WIDTH], ["B", "U", WIDTH]])
def test_sums_of_other_shapes_are_kept(shape: list[Any]) -> None:
    whole = model(node("Add", "x y", "s"), NORM, outputs="n", shapes={"y": shape})
    assert kinds(fuse_skip_norms(Graph(whole)).model) == ["Add", "LayerNormalization"]
