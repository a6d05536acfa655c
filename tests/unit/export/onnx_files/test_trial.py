"""A foreign model runs in a process of its own, which ends with its limits."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from triptych_export.errors import SourceError
from triptych_export.onnx_files import trial

from ....fixtures.onnx_models import loop_node, onnx_model, values


def save(path: Path, nodes: list[onnx.NodeProto], constants: dict[str, Any] | None = None) -> Path:
    """Save a graph from `x` to `y`, both of any number of rows."""
    onnx.save(onnx_model(nodes, values({"x": ["rows"]}), values({"y": ["rows"]}), constants or {}, opset=17), path)
    return path


def test_sets_run_up_to_the_first_that_the_model_takes(tmp_path: Path) -> None:
    path = save(tmp_path / "relu.onnx", [helper.make_node("Relu", ["x"], ["y"])])
    sets = [{"x": np.float32([[1, 2]])}, {"x": np.float32([-1, 2])}, {"x": np.float32([3])}]
    failed, found = trial.try_run(path, sets, 1_000, first=True)
    assert failed == {}
    assert found["y"].tolist() == [0, 2]
    with pytest.raises(SourceError, match="CPU time failed: "):
        trial.try_run(path, sets, 1_000)


def test_a_file_that_never_ends_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop with 2^62 turns."""
    path = save(tmp_path / "endless.onnx", [loop_node()], {"turns": np.array(2**62)})
    monkeypatch.setattr(trial, "MOST_SECONDS", 1)
    with pytest.raises(SourceError, match="a trial run"):
        trial.try_run(path, [{"x": np.zeros(2, np.float32)}], 1_000)


def test_processes_draw_the_same_random_numbers(tmp_path: Path) -> None:
    path = save(tmp_path / "noise.onnx", [helper.make_node("RandomNormalLike", ["x"], ["y"])])
    first, second = (trial.try_run(path, [{"x": np.zeros(2, np.float32)}], 1_000) for _ in range(2))
    assert np.array_equal(first[0]["y"], second[0]["y"])


def test_what_the_runtime_rejects_is_told_without_a_traceback(tmp_path: Path) -> None:
    path = save(tmp_path / "odd.onnx", [helper.make_node("Relu", ["z"], ["y"])])
    with pytest.raises(SourceError, match=r"CPU time failed: \S*odd\.onnx: the runtime cannot load it"):
        trial.try_run(path, [], 1_000)


def test_a_failed_operator_is_told_once(tmp_path: Path) -> None:
    """The runtime's log has it, too."""
    path = save(tmp_path / "shape.onnx", [helper.make_node("Reshape", ["x", "three"], ["y"])], {"three": np.array([3])})
    with pytest.raises(SourceError, match=r"CPU time failed: the runtime failed: .* requested shape:\{3\}$"):
        trial.try_run(path, [{"x": np.zeros(2, np.float32)}], 1_000)
