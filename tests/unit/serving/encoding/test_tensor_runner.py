"""Batches of plain tensors."""

import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from triptych_serving.encoding.engine import OneShotEngine, OneShotOptions
from triptych_serving.encoding.tensor_runner import TensorRows, TensorRunner, Tensors
from triptych_serving.errors import EngineError, InvalidInputError
from triptych_serving.runtime.session import InvalidArgument
from triptych_serving.scheduling.engine import run_rows
from triptych_serving.scheduling.request import Item


class Positive:
    """A graph that keeps the positive numbers of its input, as filters and non-maximum suppression do."""

    def run(self, inputs: Tensors, outputs: Sequence[str]) -> list[Any]:
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


class Refusing:
    """A graph that takes no negative numbers, as Gather takes no index that is out of range."""

    def run(self, inputs: Tensors, outputs: Sequence[str]) -> list[Any]:
        if (inputs["x"] < 0).any():
            raise EngineError("the runtime failed") from InvalidArgument("index -1 out of range")
        return [inputs["x"]]


def test_values_that_a_graph_rejects_are_the_callers_fault(caplog: pytest.LogCaptureFixture) -> None:
    engine = OneShotEngine(TensorRunner(Refusing()), OneShotOptions())  # type: ignore[arg-type]
    engine.start()
    with pytest.raises(InvalidInputError, match=r"^inputs: the graph rejects them: index -1 out of range"):
        run_rows(engine, [Item(TensorRows({"x": np.array([-1])}, 1, ("y",)), 1)])
    engine.close(drain=False)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
