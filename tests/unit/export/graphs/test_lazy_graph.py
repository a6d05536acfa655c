"""Graphs with lazily computed weights."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, TensorProto, helper, numpy_helper

from triptych_export.graphs.lazy_graph import Graph
from triptych_export.quantization.weights_file import WeightsFile

from ....fixtures.onnx_models import onnx_model, values, whole

TABLE = np.random.default_rng(5).standard_normal((40, 24)).astype(np.float32)
ROWS = np.array([3, 0, 39])


def tied() -> Graph:
    """Make a graph that gathers rows of a table and projects them with the same table."""
    nodes = [
        helper.make_node("Gather", ["table", "rows"], ["x"], axis=0),
        helper.make_node("Gemm", ["x", "table"], ["y"], transB=1),
    ]
    graph = Graph(onnx_model(nodes, values({"rows": ["n"]}, TensorProto.INT64), values({"y": None})))
    graph.model.graph.initializer.append(graph.add("table", TABLE.dtype, TABLE.shape, lambda: TABLE))
    return graph


def run(model: ModelProto | str) -> np.ndarray:
    source = model if isinstance(model, str) else model.SerializeToString()
    [answer] = onnxruntime.InferenceSession(source).run(None, {"rows": ROWS})
    return np.asarray(answer)


def test_a_table_that_is_also_multiplied_gets_its_own_name_and_the_same_place(tmp_path: Path) -> None:
    graph = tied()
    graph.part_tables()
    assert [node.input[0] for node in graph.model.graph.node] == ["table_table", "x"]
    WeightsFile(tmp_path / "weights.bin").externalize(graph)
    onnx.save(graph.model, tmp_path / "graph.onnx")
    places = [{entry.key: entry.value for entry in tensor.external_data} for tensor in graph.model.graph.initializer]
    assert places[0] == places[1]
    assert (tmp_path / "weights.bin").stat().st_size == TABLE.nbytes
    np.testing.assert_allclose(run(str(tmp_path / "graph.onnx")), TABLE[ROWS] @ TABLE.T, rtol=1e-5)


def test_a_whole_graph_contains_its_weights() -> None:
    graph = tied()
    copied = graph.copy()
    copied.part_tables()
    assert [tensor.name for tensor in graph.model.graph.initializer] == ["table"]
    assert [tensor.raw_data for tensor in graph.model.graph.initializer] == [b""]
    np.testing.assert_allclose(run(whole(copied)), run(whole(graph)))
    np.testing.assert_array_equal(numpy_helper.to_array(whole(graph).graph.initializer[0]), TABLE)
