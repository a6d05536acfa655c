"""Weights file of several graphs."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from triptych_export.graphs.lazy_graph import LARGE as LIMIT
from triptych_export.graphs.lazy_graph import Graph
from triptych_export.quantization.weights_file import ALIGNMENT, PAGE, WeightsFile

RNG = np.random.default_rng(5)
LARGE = RNG.standard_normal((40, 30), np.float32)
OTHER = RNG.standard_normal(500, np.float32)
SMALL = np.arange(4, dtype=np.int64)


def make_model(**weights: NDArray[np.generic]) -> ModelProto:
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    return helper.make_model(helper.make_graph([], "graph", [], [], tensors))


def placed(model: ModelProto) -> dict[str, int]:
    """Offsets of the tensors that are in the file."""
    entries = {t.name: {e.key: e.value for e in t.external_data} for t in model.graph.initializer if t.external_data}
    return {name: int(entry["offset"]) for name, entry in entries.items()}


@pytest.fixture
def file(tmp_path: Path) -> WeightsFile:
    return WeightsFile(tmp_path / "weights.bin")


def test_a_model_is_unchanged_after_a_round_trip(tmp_path: Path, file: WeightsFile) -> None:
    weights = {"large": LARGE, "small": SMALL, "bytes": RNG.integers(-127, 127, 5_000).astype(np.int8), "scalar": np.array(2.5)}
    original, model = make_model(**weights), make_model(**weights)
    file.externalize(Graph(model))
    onnx.save(model, tmp_path / "model.onnx")
    loaded = onnx.load(tmp_path / "model.onnx")
    for before, after in zip(original.graph.initializer, loaded.graph.initializer, strict=True):
        assert (before.name, before.data_type, before.dims) == (after.name, after.data_type, after.dims)
        np.testing.assert_array_equal(numpy_helper.to_array(before), numpy_helper.to_array(after))


def test_small_tensors_stay_in_the_graph(file: WeightsFile) -> None:
    floats = LIMIT // 4
    model = make_model(edge=np.ones(floats, np.float32), below=np.ones(floats - 1, np.float32))
    file.externalize(Graph(model))
    assert placed(model).keys() == {"edge"}
    assert model.graph.initializer[0].data_location == TensorProto.EXTERNAL
    assert not model.graph.initializer[0].raw_data


def test_equal_tensors_are_stored_once(file: WeightsFile) -> None:
    first, second = make_model(a=LARGE, b=OTHER), make_model(c=OTHER, d=LARGE.reshape(30, 40), e=LARGE + 1)
    file.externalize(Graph(first))
    size = file.path.stat().st_size
    file.externalize(Graph(second))
    assert placed(second)["c"] == placed(first)["b"]
    assert placed(second)["d"] == placed(first)["a"]
    assert list(second.graph.initializer[1].dims) == [30, 40]
    assert size < file.path.stat().st_size < size + PAGE + LARGE.nbytes + 1


def test_tensors_start_on_pages_of_a_file_named_without_its_folder(file: WeightsFile) -> None:
    model = make_model(a=LARGE, b=OTHER, c=LARGE + 1)
    file.externalize(Graph(model))
    offsets = placed(model)
    assert [offsets["a"] % PAGE, offsets["b"] % ALIGNMENT, offsets["c"] % PAGE] == [0, 0, 0]
    assert offsets["b"] < offsets["a"] + LARGE.nbytes + ALIGNMENT  # small ones fill the page before them
    assert len(set(offsets.values())) == 3
    assert {e.value for t in model.graph.initializer for e in t.external_data if e.key == "location"} == {"weights.bin"}
