"""ONNX files that must not be run are refused before anything runs them, with bounded memory."""

import random
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, StringStringEntryProto, TensorProto, helper

from triptych_export.errors import SourceError
from triptych_export.onnx_files.checks import read_model

from ....fixtures.onnx_models import onnx_model, values

FLOAT = TensorProto.FLOAT
Change = Callable[[ModelProto], object]


def small() -> ModelProto:
    """`y = x + bias`, of two numbers."""
    nodes, bias = [helper.make_node("Add", ["x", "bias"], ["y"])], np.ones(2, np.float32)
    return onnx_model(nodes, values({"x": ["rows", 2]}), values({"y": ["rows", 2]}), {"bias": bias}, opset=17)


def stored(location: str, **entries: str) -> Change:
    """Let the weights be in a file."""

    def change(model: ModelProto) -> None:
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **entries}.items():
            tensor.external_data.append(StringStringEntryProto(key=key, value=value))

    return change


def nested(depth: int) -> Change:
    def change(model: ModelProto) -> None:
        for _ in range(depth):
            branch = helper.make_graph(list(model.graph.node), "branch", [], [helper.make_tensor_value_info("y", FLOAT, None)])
            del model.graph.node[:]
            model.graph.node.append(helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: model.graph.initializer[0].dims.__setitem__(0, 10**10), "declares 40,000,000,000 bytes and holds 8"),
        (lambda model: model.graph.initializer[0].dims.__setitem__(0, -2), r"dimensions \[-2\]"),
        (stored("../secret"), "must be in a file beside the model"),
        (stored("/etc/passwd"), "must be in a file beside the model"),
        (stored("link"), "not a file beside the model"),
        (stored("missing.bin"), "not a file beside the model"),
        (stored("weights.bin", offset="4"), "needs 8 bytes from byte 4 of 'weights.bin', which has 8"),
        (stored("weights.bin", length="1000"), "needs 8 bytes"),
        (lambda model: setattr(model.graph.node[0], "domain", "my.ops"), "operator 'Add' of the domain 'my.ops'"),
        (
            lambda model: setattr(model.graph.node[0], "domain", "com.microsoft.nchwc"),
            "optimized for one processor: export the",
        ),
        (lambda model: setattr(model.opset_import[0], "version", 6), "opset 6, at least 7"),
        (lambda model: model.graph.ClearField("node"), "no graph"),
        (nested(11), ""),
    ],
)
def test_what_must_not_run_is_refused(change: Change, message: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    path = tmp_path / "model" / "model.onnx"
    (path.parent / "weights.bin").write_bytes(bytes(8))
    (tmp_path / "secret").write_bytes(bytes(8))
    (path.parent / "link").symlink_to(tmp_path / "secret")
    model = small()
    change(model)
    path.write_bytes(model.SerializeToString())
    if not message:
        assert read_model(path).graph.output
        return
    with pytest.raises(SourceError, match=message):
        read_model(path)


def test_all_faults_are_in_one_message(tmp_path: Path) -> None:
    model = small()
    model.graph.node[0].domain = "my.ops"
    model.graph.initializer[0].dims[0] = 3
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(SourceError, match=r"my\.ops.*declares 12 bytes and holds 8"):
        read_model(tmp_path / "model.onnx")


def test_damaged_files_are_refused_with_bounded_memory(tmp_path: Path) -> None:
    chance = random.Random(27)
    whole = small().SerializeToString()
    path = tmp_path / "model.onnx"
    tracemalloc.start()
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(bytes(damaged[: chance.randint(0, len(damaged))]))
        with suppress(SourceError):  # any other error is a failure; some damage does not matter
            read_model(path)
    assert tracemalloc.get_traced_memory()[1] < 50 << 20
    tracemalloc.stop()
