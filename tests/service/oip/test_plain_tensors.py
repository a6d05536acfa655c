"""A model of plain tensors, as tritonclient and our own client see it."""

from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest
from tritonclient import grpc as triton

from triptych.inference import open_inference_pb2 as pb
from triptych_client import Client, InvalidArgumentError
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.tensors.tensor_model import TensorModel
from triptych_serving.services.oip.plain_tensors import _array

from ...fixtures.encoders import png, write_tensors_bundle
from ...unit.cli.conftest import Run

NUMBERS = np.arange(6, dtype=np.float32).reshape(2, 3)
TENSOR = triton.InferInput("numbers", NUMBERS.shape, "FP32").set_data_from_numpy(NUMBERS)


def test_tritonclient_finds_and_runs_it(every_model: str) -> None:
    with triton.InferenceServerClient(every_model) as client:
        metadata = client.get_model_metadata("tensors", as_json=True)
        assert metadata["inputs"] == [{"name": "numbers", "datatype": "FP32", "shape": ["-1", "-1"]}]
        config = client.get_model_config("tensors", as_json=True)["config"]
        assert (config["max_batch_size"] > 1, config["input"][0]["dims"]) == (True, ["-1"])
        wanted = [triton.InferRequestedOutput("bits")]
        result = client.infer("tensors", [TENSOR], outputs=wanted)
        np.testing.assert_array_equal(result.as_numpy("bits"), NUMBERS.sum(1, keepdims=True).astype(np.float16))
        assert result.as_numpy("sum") is None


def test_our_client_and_command_run_it(client: Client, every_model: str, run: Run, tmp_path: Path) -> None:
    results = client.infer("tensors", {"numbers": NUMBERS})
    for name, kind in (("sum", np.float32), ("bits", np.float16)):
        np.testing.assert_array_equal(np.asarray(results[name]), NUMBERS.sum(1, keepdims=True).astype(kind))
    np.save(tmp_path / "numbers.npy", NUMBERS)
    given = ("--model", "tensors", "--input", f"numbers={tmp_path / 'numbers.npy'}")
    out = tmp_path / "out.npz"
    run("infer", "--server", every_model, *given, "--output", str(out))
    with np.load(out) as stored:
        np.testing.assert_array_equal(stored["sum"], NUMBERS.sum(1, keepdims=True))


def test_image_files_are_sent_and_labels_come_back(client: Client, every_model: str, run: Run, tmp_path: Path) -> None:
    picture, model = png((0, 255, 51)), "image-tensors"
    np.testing.assert_allclose(np.asarray(client.infer(model, {"x": [picture] * 2})["y"]), [[-2, 2, -1.2]] * 2, rtol=1e-6)
    found = client.infer(model, {"x": [picture]}, outputs={"y": 2})["y"]
    assert (found.shape, [one.split(":")[1:] for one in found.strings]) == ((1, 2), [["1", "green"], ["2", "blue"]])
    (tmp_path / "picture.png").write_bytes(picture)
    given = ("infer", "--server", every_model, "--model", model, "--image", f"x={tmp_path / 'picture.png'}", "--labels")
    assert run(*given, "y=2").success.splitlines() == ["y score:index:label", *found.strings]
    with pytest.raises(TypeError, match="its values are in `strings`"):
        np.asarray(client.infer(model, {"x": [picture]}, outputs={"y": 2})["y"])
    with pytest.raises(InvalidArgumentError, match=r"x\[1\].*PDF"):
        client.infer(model, {"x": [picture, b"%PDF"]})
    with pytest.raises(InvalidArgumentError, match="sum: it has no labels"):
        client.infer("tensors", {"numbers": NUMBERS}, outputs={"sum": 1})


def test_texts_are_tensors(client: Client, every_model: str, run: Run, tmp_path: Path) -> None:
    texts = np.array([["\xe4b"], [""], ["c"]])
    for given in (texts, texts.astype(object), np.char.encode(texts, "utf-8")):
        twice = client.infer("text-tensors", {"texts": given})["twice"]
        assert (twice.datatype, twice.shape, twice.strings) == ("BYTES", (3, 1), ("\xe4b\xe4b", "", "cc"))
    with triton.InferenceServerClient(every_model) as other:
        assert other.get_model_config("text-tensors", as_json=True)["config"]["input"][0]["data_type"] == "TYPE_STRING"
        tensor = triton.InferInput("texts", texts.shape, "BYTES").set_data_from_numpy(texts.astype(object))
        assert other.infer("text-tensors", [tensor]).as_numpy("twice").tolist() == [["\xe4b\xe4b".encode()], [b""], [b"cc"]]
    np.save(tmp_path / "texts.npy", texts)
    given = ("--model", "text-tensors", "--input", f"texts={tmp_path / 'texts.npy'}", "--output", tmp_path / "out.npz")
    run("infer", "--server", every_model, *given)
    with np.load(tmp_path / "out.npz") as stored:
        assert stored["twice"].tolist() == [["\xe4b\xe4b"], [""], ["cc"]]
    with pytest.raises(InvalidArgumentError, match=r"texts: shape \[1\] does not fit \[any, 1\]"):
        client.infer("text-tensors", {"texts": ["a"]})
    with pytest.raises(InvalidArgumentError, match=r"texts\[1\]: not UTF-8"):
        client.infer("text-tensors", {"texts": [b"a", b"\xff"]})
    with pytest.raises(InvalidArgumentError, match="texts: its values are float32, must be BYTES"):
        client.infer("text-tensors", {"texts": NUMBERS})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "inputs: missing input numbers"),
        ({"numbers": NUMBERS, "more": NUMBERS}, "there is none 'more'; there are: numbers FP32"),
        ({"numbers": NUMBERS.astype(np.float64)}, "numbers: its values are float64, must be FP32"),
        ({"numbers": NUMBERS[0]}, r"numbers: shape \[3\] does not fit \[any, any\]"),
        ({"numbers": NUMBERS[:, :0]}, r"numbers: shape \[2, 0\] does not fit"),
    ],
)
def test_what_does_not_fit_is_explained(inputs: dict[str, np.ndarray], message: str, client: Client) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        client.infer("tensors", inputs)


def test_what_a_tensor_cannot_have_is_named(every_model: str) -> None:
    shared = triton.InferInput("numbers", NUMBERS.shape, "FP32")
    shared.set_shared_memory("region", NUMBERS.nbytes)
    wanted = triton.InferRequestedOutput("sum")
    wanted.set_shared_memory("region", 8)
    answers: Queue[triton.InferResult] = Queue()
    with triton.InferenceServerClient(every_model) as client:
        client.start_stream(lambda result, error: answers.put(error or result))
        client.async_stream_infer("tensors", [TENSOR], enable_empty_final_response=True)
        assert answers.get(timeout=30).as_numpy("sum").size == 2
        client.stop_stream()
        for inputs, outputs, problem in (
            ([shared], None, "numbers: it has a parameter 'shared_memory_"),
            ([TENSOR], [wanted], r"outputs\[0\].parameters: there is 'shared_memory_.*there may be 'classification'"),
        ):
            with pytest.raises(triton.InferenceServerException, match=problem):
                client.infer("tensors", inputs, outputs=outputs)


def test_parameters_and_outputs_are_checked_as_for_other_tasks(every_model: str) -> None:
    with triton.InferenceServerClient(every_model) as client:
        assert client.infer("tensors", [TENSOR], parameters={"task": "tensors"}).as_numpy("sum").size == 2
        cases: list[tuple[Any, list[str], str]] = [
            ({"task": "embedding"}, ["sum"], "the model does not have the task 'embedding'; it has: tensors"),
            ({"top_k": 1}, ["sum"], r"parameters\.top_k: there is no such parameter; there are: task"),
            ({}, ["sum", "bits", "sum"], r"outputs\[2\]\.name: duplicate name 'sum'"),
        ]
        for parameters, names, problem in cases:
            with pytest.raises(triton.InferenceServerException, match=problem):
                client.infer(
                    "tensors", [TENSOR], outputs=[triton.InferRequestedOutput(one) for one in names], parameters=parameters
                )


def test_values_outside_of_their_datatype_are_rejected() -> None:
    tensor = pb.ModelInferRequest.InferInputTensor(name="a", datatype="INT8", shape=[2])
    tensor.contents.int_contents.extend((-128, 127))
    assert _array(tensor, None).tolist() == [-128, 127]
    tensor.contents.int_contents[1] = 128
    with pytest.raises(InvalidInputError, match="a: it is no INT8 tensor: "):
        _array(tensor, None)
    texts = pb.ModelInferRequest.InferInputTensor(name="a", datatype="BYTES", shape=[2, 1])
    texts.contents.bytes_contents.extend((b"b", b""))
    assert _array(texts, None).tolist() == [["b"], [""]]
    texts.shape[:] = [1 << 20, 1 << 20]
    with pytest.raises(InvalidInputError, match=r"a: shape .* elements, must have 1 to 16,384"):
        _array(texts, b"")
    tensor.shape[:] = [0, 2**62, 4]
    with pytest.raises(InvalidInputError, match="a: it is no INT8 tensor: "):
        _array(tensor, b"")


def test_requests_of_equal_sizes_run_together(tmp_path: Path) -> None:
    write_tensors_bundle(tmp_path)
    model = TensorModel("tensors", 1, open_bundle(tmp_path / "tensors" / "1"))
    try:
        works = [model.prepare({"numbers": NUMBERS[:, :width] + width}) for width in (3, 2, 3)]
        runner = model.engine._runner
        assert runner is not None
        items = [work.items[0] for work in works]
        batch = runner.prepare(items)
        assert sorted(len(part.items) for part in batch) == [1, 2]
        runner.finish(items, runner.run(batch))
        for width, work in zip((3, 2, 3), works, strict=True):
            np.testing.assert_array_equal(next(work.read())["sum"], (NUMBERS[:, :width] + width).sum(1, keepdims=True))
    finally:
        model.close()
