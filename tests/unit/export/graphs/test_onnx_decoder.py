"""Graphs of other programs inside decoders of ours."""

from pathlib import Path

import numpy as np
from onnx import helper

from triptych_export.graphs.onnx_decoder import _converted
from triptych_export.onnx_files.checks import opset_of

from ....fixtures.onnx_models import onnx_model, values


def test_operators_that_only_the_runtime_has_are_kept_by_the_conversion(tmp_path: Path) -> None:
    """ONNX Runtime GenAI writes SimplifiedLayerNormalization without a domain; onnx's converter does not know it."""
    nodes = [helper.make_node("SimplifiedLayerNormalization", ["x", "scale"], ["y"])]
    shape = {"x": ["rows", 4]}, {"y": ["rows", 4]}
    model = onnx_model(nodes, *map(values, shape), {"scale": np.ones(4, np.float32)}, opset=22)
    converted = _converted(model, tmp_path, 21, "file/").model
    [node] = converted.graph.node
    assert (node.op_type, node.domain, opset_of(converted)) == ("SimplifiedLayerNormalization", "", 21)
    assert {one.domain for one in converted.opset_import} <= {"", "com.microsoft"}
