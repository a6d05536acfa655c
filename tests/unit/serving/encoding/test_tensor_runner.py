"""Batches of plain tensors."""

import logging
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper

from triptych_serving.encoding.engine import OneShotEngine, OneShotOptions
from triptych_serving.encoding.lone_session import LoneSession
from triptych_serving.encoding.tensor_runner import TensorRows, TensorRunner, Tensors
from triptych_serving.errors import EngineError, InvalidInputError, TooLargeError
from triptych_serving.runtime.session import RunStop, Session, open_arena, shrink_arena
from triptych_serving.scheduling.engine import run_rows
from triptych_serving.scheduling.request import Item

from ....fixtures.onnx_models import loop_node, onnx_model, values
from ..calls import RecordedCall, eventually


class Positive:
    """A graph that keeps the positive numbers of its input, as filters and non-maximum suppression do."""

    def run(self, inputs: Tensors, outputs: Sequence[str], stop: RunStop) -> list[Any]:
        return [inputs["x"][inputs["x"] > 0]]


def run_together(runner: TensorRunner, *rows: list[float]) -> list[Any]:
    items: Any = [SimpleNamespace(payload=TensorRows({"x": np.array(row)}, len(row), ("y",)), result=None) for row in rows]
    runner.finish(items, runner.run(runner.prepare(items)))
    return [item.result["y"].tolist() for item in items]


def test_nobody_gets_the_rows_of_others() -> None:
    runner = TensorRunner(Positive())  # type: ignore[arg-type]
    assert run_together(runner, [1, 2], [3]) == [[1, 2], [3]]
    assert run_together(runner, [-1, 2]) == [[2]]
    with pytest.raises(EngineError, match=r"^4 rows were run together, outputs have shapes \[\(3,\)\]"):
        run_together(runner, [-1, 2], [3, 4])  # the engine then runs each again
    assert run_together(runner, [-1, 2], [3, 4]) == [[2], [3, 4]]


@pytest.mark.parametrize(("sizes", "message"), [([-1], "ConstantOfShape"), ([2, 3], "Add node")])
def test_values_that_a_graph_rejects_are_the_callers_fault(
    sizes: list[int], message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "add.onnx"
    nodes = [helper.make_node("ConstantOfShape", ["sizes"], ["x"]), helper.make_node("Add", ["x", "one"], ["y"])]
    inputs, outputs = values({"sizes": ["dimensions"]}, TensorProto.INT64), values({"y": None})
    onnx.save(onnx_model(nodes, inputs, outputs, {"one": np.ones(2, np.float32)}, opset=17), path)
    engine = OneShotEngine(TensorRunner(Session(path)), OneShotOptions())
    engine.start()
    with pytest.raises(InvalidInputError, match=rf"^inputs: the graph rejects them: .*{message}"):
        run_rows(engine, [Item(TensorRows({"sizes": np.array(sizes)}, 1, ("y",)), 1)])
    engine.close(drain=False)
    assert not caplog.records


def test_memory_that_values_ask_for_has_a_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A number in a request may ask a graph for any memory: above the limit it fails, and the next request does not."""

    def fill(count: int) -> Any:
        (item,) = items = [Item(TensorRows({"sizes": np.array([count])}, 1, ("y",)), 1)]
        run_rows(engine, items)
        return item.result["y"]

    path, process = tmp_path / "fill.onnx", psutil.Process()
    nodes = [
        helper.make_node("ConstantOfShape", ["sizes"], ["zeros"]),
        helper.make_node("ReduceSum", ["zeros"], ["y"], keepdims=0),
    ]
    onnx.save(onnx_model(nodes, values({"sizes": [1]}, TensorProto.INT64), values({"y": []}), opset=17), path)
    engine = OneShotEngine(TensorRunner(LoneSession(path, 1, 1, saturation_free=True, in_arena=True)), OneShotOptions())
    engine.start()
    try:
        for count in (2**40, open_arena() // 4 + 1):
            with pytest.raises(TooLargeError, match=r"^inputs: the graph needs more memory to compute them than is left"):
                fill(count)
        assert fill(50_000_000) == 0
        kept = process.memory_info().rss
        shrink_arena()
        assert process.memory_info().rss < kept - 150_000_000
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    finally:
        engine.close(drain=False)


@pytest.mark.parametrize("closes", [False, True])
def test_a_run_that_no_caller_waits_for_is_ended(closes: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A request can make a loop of a graph endless: neither the next request nor the end of the server waits for it."""

    def call(turns: int) -> RecordedCall:
        payload = TensorRows({"x": np.float32([1]), "turns": np.array(turns)}, 1, ("y",))
        return RecordedCall([Item(payload, 1)])

    path, inputs = tmp_path / "loop.onnx", [*values({"x": ["rows"]}), *values({"turns": []}, TensorProto.INT64)]
    onnx.save(onnx_model([loop_node()], inputs, values({"y": ["rows"]}), opset=17), path)
    engine = OneShotEngine(TensorRunner(Session(path)), OneShotOptions())
    engine.start()
    try:
        endless, short = call(2**62), call(3)
        engine.submit(endless)
        eventually(lambda: engine.count_rows() == (1, 0))
        if not closes:
            engine.cancel(endless)
            engine.submit(short)
            short.wait()
            assert short.rows[0].result["y"].tolist() == [8]
            assert not caplog.records
    finally:
        engine.close(drain=False)
    endless.wait()
    assert endless.error is not None
