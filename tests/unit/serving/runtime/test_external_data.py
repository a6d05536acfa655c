"""A bundle's graphs read no file but the bundle's own."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.errors import BundleError
from triptych_serving.runtime.external_data import external_bytes, external_files
from triptych_serving.runtime.session import Session

from ....fixtures.encoders import sign, write_text_bundle
from ....fixtures.toy import BUNDLE

VALUES = np.arange(4, dtype=np.float32)


def outside(location: str, name: str = "w", entry: str = "location") -> TensorProto:
    """A tensor whose values are in another file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in ((entry, location), ("offset", "0"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    return tensor


def sparse(location: str) -> onnx.SparseTensorProto:
    indices = helper.make_tensor("i", TensorProto.INT64, [4], [0, 1, 2, 3])
    return helper.make_sparse_tensor(outside(location), indices, [4])


def graph_with(*tensors: TensorProto, nodes: tuple[onnx.NodeProto, ...] = ()) -> onnx.GraphProto:
    info = helper.make_tensor_value_info
    add = helper.make_node("Add", ["x", "w"], ["y"])
    return helper.make_graph([add, *nodes], "g", [info("x", 1, [4])], [info("y", 1, [4])], tensors)


def model_of(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def constant(**attributes: object) -> onnx.NodeProto:
    return helper.make_node("Constant", [], ["c"], **attributes)


def hidden_everywhere(location: str) -> dict[str, onnx.ModelProto]:
    """A model for each place that a tensor can be in."""
    inner = graph_with(outside(location))
    within_sparse = graph_with()
    within_sparse.sparse_initializer.append(sparse(location))
    function = model_of(graph_with())
    function.functions.append(
        helper.make_function("d", "F", [], ["c"], [constant(value=outside(location))], [helper.make_opsetid("", 21)])
    )
    training = model_of(graph_with())
    training.training_info.add().initialization.CopyFrom(inner)
    return {
        "initializer": model_of(inner),
        "sparse initializer": model_of(within_sparse),
        "constant": model_of(graph_with(nodes=(constant(value=outside(location)),))),
        "sparse constant": model_of(graph_with(nodes=(constant(sparse_value=sparse(location)),))),
        "list of tensors": model_of(graph_with(nodes=(constant(values=[outside(location)]),))),
        "branch": model_of(graph_with(nodes=(helper.make_node("If", ["b"], ["z"], then_branch=inner, else_branch=inner),))),
        "branches": model_of(graph_with(nodes=(helper.make_node("Many", [], ["z"], graphs=[inner]),))),
        "function": function,
        "training": training,
    }


def save(model: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("place", hidden_everywhere(""))
def test_external_weights_are_found_and_counted_in_every_kind_of_message(tmp_path: Path, place: str) -> None:
    path = save(hidden_everywhere("../secret")[place], tmp_path / "model.onnx")
    assert external_files(path) == {"../secret"}
    assert external_bytes(path) == (2 if place == "branch" else 1) * VALUES.nbytes


def test_exported_graphs_name_their_weights() -> None:
    named = {name: external_files(BUNDLE / name) for name in ("encoder.fp32.onnx", "search.int8.onnx")}
    assert named == {"encoder.fp32.onnx": {"weights.fp32.bin"}, "search.int8.onnx": {"weights.int8.bin"}}


def nested_graphs(levels: int = 40) -> bytes:
    message = b""
    for number in [7, *[1, 5, 6] * levels][::-1]:  # a model's graph, its node, the node's attribute, which is a graph
        length = [byte | 0x80 for byte in (len(message) & 0x7F,)] + [len(message) >> 7]
        message = bytes([number << 3 | 2, *length]) + message
    return message


def with_a_long_key() -> bytes:
    """A graph whose external data has the key 13 << 3 | 2 in 33 bits."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    entry = onnx.StringStringEntryProto(key="location", value="../secret").SerializeToString()
    message = tensor.SerializeToString() + bytes([0xEA, 0x80, 0x80, 0x80, 0x10, len(entry)]) + entry
    message = bytes([5 << 3 | 2, len(message)]) + message
    return bytes([7 << 3 | 2, len(message)]) + message


def with_a_malformed_length() -> bytes:
    tensor = outside("w.bin")
    tensor.external_data[2].value = "long"
    return model_of(graph_with(tensor)).SerializeToString()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        *[(content, "not a graph") for content in (b"", b"\xff" * 40, b"\x3a\x7f", b"\x3b", b"\x3a\x03\x0a\x7f\x00")],
        (with_a_long_key(), "a field's key before byte .* has more than 32 bits"),
        (nested_graphs(), "nested more than 100 deep"),
        (with_a_malformed_length(), r"model\.onnx: not a graph: .*long"),
    ],
)
def test_files_that_are_no_graphs_are_rejected(tmp_path: Path, content: bytes, fault: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    read = external_bytes if "long" in fault else external_files
    with pytest.raises(BundleError, match=fault):
        read(path)


@given(st.data())
def test_arbitrary_bytes_never_crash_the_parser(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole = bytearray(model_of(graph_with(outside("weights"))).SerializeToString())
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=6)):
        whole[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "any.onnx"
    path.write_bytes(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
    with suppress(BundleError):
        assert all(isinstance(name, str) for name in external_files(path))


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_bytes(VALUES.tobytes())
    return write_text_bundle(tmp_path)


def faults_of(folder: Path) -> str:
    with pytest.raises(BundleError) as error:
        open_bundle(folder)
    return "; ".join(error.value.faults)


def set_location(folder: Path, location: str) -> None:
    """The bundle's graph reads its weights from there, and the manifest records the graph as it is."""
    save(model_of(graph_with(outside(location))), folder / "model.fp32.onnx")
    sign(folder)


@pytest.mark.parametrize(
    "location",
    ["../../../secret", "/etc/passwd", "sub/weights", "sub/../../../../secret", "./tokenizer.json", "link", "weights", ""],
)
def test_unlisted_external_data_is_rejected(bundle: Path, location: str) -> None:
    set_location(bundle, location)
    (bundle / "sub").mkdir()
    for unlisted in ("sub/weights", "weights"):
        (bundle / unlisted).write_bytes(VALUES.tobytes())
    (bundle / "link").symlink_to(bundle.parents[1] / "secret")
    assert f"model.fp32.onnx wants to read {location!r}, which is not among the bundle's files" in faults_of(bundle)


def test_listed_external_data_is_accepted_unless_it_is_a_link(bundle: Path) -> None:
    (bundle / "weights").write_bytes(VALUES.tobytes())
    set_location(bundle, "weights")
    link = bundle.parent / "2"
    link.symlink_to(bundle)
    assert open_bundle(link).manifest.task == "fill-mask"
    [answer] = Session(open_bundle(bundle).folder / "model.fp32.onnx").run({"x": VALUES})
    assert answer.tolist() == (2 * VALUES).tolist()
    (bundle / "weights").unlink()
    (bundle / "weights").symlink_to(bundle.parents[1] / "secret")
    sign(bundle)
    assert faults_of(bundle) == "weights is missing or not a plain file"


def test_other_file_types_are_not_given_to_the_runtime(tmp_path: Path) -> None:
    path = save(model_of(graph_with(helper.make_tensor("w", 1, [4], VALUES))), tmp_path / "model.ort")
    with pytest.raises(BundleError, match=r"names of graphs end in \.onnx"):
        Session(path)


@pytest.mark.parametrize("name", ["../secret", "sub/file", "/etc/passwd", "..", "."])
def test_file_names_with_separators_are_rejected(bundle: Path, name: str) -> None:
    path = bundle / "bundle.json"
    digest = '{"sha256": "0", "bytes": 16}'
    path.write_text(path.read_text().replace('"files": {', f'"files": {{"{name}": {digest}, ', 1))
    assert "is not a plain file name" in (faults := faults_of(bundle)) or "not a plain file" in faults
