"""Integer divisions of imported graphs that would end the server's process."""

import copy
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, TensorProto, helper

from triptych_export.onnx_files.divisions import guard_divisions

from ....fixtures.onnx_models import onnx_model, values

KINDS = {TensorProto.INT32: np.int32, TensorProto.INT64: np.int64}


def division(operator: str, kind: int, nested: bool, opset: int = 17) -> ModelProto:
    """Divide x by z, or x + x in a branch of a condition."""
    inputs, outputs = values({"x": ["rows"], "z": ["rows"]}, kind), values({"y": ["rows"]}, kind)
    if not nested:
        return onnx_model([helper.make_node(operator, ["x", "z"], ["y"])], inputs, outputs, opset=opset)
    nodes = [helper.make_node("Add", ["x", "x"], ["sum"]), helper.make_node(operator, ["sum", "z"], ["out"])]
    branch = helper.make_graph(nodes, "branch", [], [onnx.ValueInfoProto(name="out")])
    choice = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    return onnx_model([choice], [*inputs, *values({"c": []}, TensorProto.BOOL)], outputs, opset=opset)


def run(model: ModelProto, **inputs: Any) -> list[int]:
    [result] = ort.InferenceSession(model.SerializeToString()).run(None, inputs)
    found: list[int] = result.tolist()
    return found


@pytest.mark.parametrize("opset", [7, 17])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_the_smallest_integer_may_be_divided_by_minus_one(operator: str, kind: int, opset: int) -> None:
    opset = max(opset, 10) if operator == "Mod" else opset
    model, least = division(operator, kind, nested=False, opset=opset), np.iinfo(KINDS[kind]).min
    before = copy.deepcopy(model)
    assert guard_divisions(model) == 1
    onnx.checker.check_model(model)
    x, z = np.array([least, 7, -7], KINDS[kind]), np.array([-1, -1, -1], KINDS[kind])
    assert run(model, x=x, z=z) == ([least, -7, 7] if operator == "Div" else [0, 0, 0])
    usual = {"x": np.array([-7, 7, -7, 7, 0, least], KINDS[kind]), "z": np.array([2, -2, -2, 2, -1, -2], KINDS[kind])}
    assert run(model, **usual) == run(before, **usual)


def test_divisions_in_branches_are_guarded() -> None:
    model = division("Div", TensorProto.INT32, nested=True)
    assert guard_divisions(model) == 2
    x, z = np.array([-(2**30), 9], np.int32), np.array([-1, 2], np.int32)
    for choice in (False, True):
        assert run(model, x=x, z=z, c=np.array(choice)) == [-(2**31), 9]


def test_other_divisions_are_left_alone() -> None:
    assert guard_divisions(division("Div", TensorProto.FLOAT, nested=False)) == 0
    node, inputs, outputs = helper.make_node("Div", ["x", "c"], ["y"]), values({"x": ["n"]}, TensorProto.INT64), ["n"]
    for constant, count in ((4, 0), (-1, 1), ([3, -1], 1)):
        constants = {"c": np.array(constant, np.int64)}
        model = onnx_model([node], inputs, values({"y": outputs}, TensorProto.INT64), constants, opset=17)
        assert guard_divisions(model) == count
    fixed = helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(np.array(4)))
    model = onnx_model([fixed, node], inputs, values({"y": outputs}, TensorProto.INT64), opset=17)
    assert guard_divisions(model) == 0
