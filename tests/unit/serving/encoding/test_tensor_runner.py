"""Batches of plain tensors."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from triptych_serving.encoding.tensor_runner import TensorRows, TensorRunner, Tensors
from triptych_serving.errors import EngineError


class Positive:
    """A graph that keeps the positive numbers of its input, as filters and non-maximum suppression do."""

    def run(self, inputs: Tensors, outputs: Sequence[str]) -> list[Any]:
        return [inputs["x"][inputs["x"] > 0]]


def run_together(*rows: list[float]) -> list[Any]:
    items: Any = [SimpleNamespace(payload=TensorRows({"x": np.array(row)}, len(row), ("y",)), result=None) for row in rows]
    runner = TensorRunner(Positive())  # type: ignore[arg-type]
    runner.finish(items, runner.run(runner.prepare(items)))
    return [item.result["y"].tolist() for item in items]


def test_nobody_gets_the_rows_of_others() -> None:
    assert run_together([1, 2], [3]) == [[1, 2], [3]]
    assert run_together([-1, 2]) == [[2]]
    with pytest.raises(EngineError, match=r"^4 rows were run together, outputs have shapes \[\(3,\)\]"):
        run_together([-1, 2], [3, 4])  # the engine then runs each alone
