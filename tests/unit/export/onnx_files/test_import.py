"""Small ONNX files become bundles whose answers are those of the files."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from triptych.inference import open_inference_pb2 as pb
from triptych_cli.encoders.tensors import command as infer
from triptych_client.tensors import INFER, infer_request
from triptych_export.errors import ParityError, SourceError
from triptych_export.exporter import ExportOptions, export
from triptych_export.families import tensors
from triptych_export.huggingface.checkpoint.weights import open_weights
from triptych_export.huggingface.folder import Folder
from triptych_export.onnx_files.layout import find_graphs
from triptych_export.onnx_files.scikit_learn import replace_locales
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import read_manifest
from triptych_serving.errors import BundleError, InvalidInputError
from triptych_serving.models.tensors.tensor_model import TensorModel
from triptych_serving.models.text.tasks import EMBEDDING_TASK, FILL_MASK_TASK, QUESTION_ANSWERING_TASK, TEXT_CLASSIFICATION_TASK
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.runtime import session
from triptych_serving.services.oip.inference import whole_response
from triptych_serving.services.oip.plain_tensors import inputs_from, response_to

from ....fixtures.encoders import VOCABULARY, png, tokenizer
from ....fixtures.json_files import edit_json, write_json, write_pooling
from ....fixtures.onnx_models import onnx_model, values
from ....fixtures.quick_trials import quick_trials  # noqa: F401

INT64, FLOAT = TensorProto.INT64, TensorProto.FLOAT
WIDTH, LABELS = 8, 3
ARCHITECTURES = {
    "hidden": "BertModel",
    "labels": "BertForSequenceClassification",
    "words": "BertForMaskedLM",
    "spans": "BertForQuestionAnswering",
}


def encoder(
    folder: Path,
    kind: str,
    sizes: tuple[Any, Any] = ("B", "T"),
    names: str = "input_ids attention_mask",
    label_count: int = LABELS,
) -> Path:
    """Write an encoder: states are rows of a table plus the mean of the text's rows; heads are products with other tables."""
    chance = np.random.default_rng(1)
    rows = {"words": len(VOCABULARY), "labels": label_count, "spans": 1}
    tables = {name: chance.normal(size=(WIDTH, count)).astype(np.float32) for name, count in rows.items()}
    tables["table"] = chance.normal(size=(len(VOCABULARY), WIDTH)).astype(np.float32)
    ids, mask = names.split()
    node = helper.make_node
    nodes = [
        node("Gather", ["table", ids], ["rows"]),
        node("Cast", [mask], ["inside"], to=FLOAT),
        node("Unsqueeze", ["inside", "last"], ["column"]),
        node("Mul", ["rows", "column"], ["kept"]),
        node("ReduceMean", ["kept"], ["mean"], axes=[1], keepdims=1),
        node("ReduceMean", ["column"], ["share"], axes=[1], keepdims=1),
        node("Div", ["mean", "share"], ["text"]),
        node("Add", ["rows", "text"], ["last_hidden_state"]),
        node("MatMul", ["last_hidden_state", "words"], ["words_logits"]),
        node("MatMul", ["text", "labels"], ["labels_wide"]),
        node("Squeeze", ["labels_wide", "first"], ["labels_logits"]),
        node("MatMul", ["last_hidden_state", "spans"], ["spans_wide"]),
        node("Squeeze", ["spans_wide", "last"], ["start_logits"]),
        node("Neg", ["start_logits"], ["end_logits"]),
        node("Identity", [f"{kind}_logits" if kind in ("words", "labels") else "rows"], ["logits"]),
    ]
    shapes = {
        "hidden": {"last_hidden_state": [*sizes, WIDTH]},
        "labels": {"logits": [sizes[0], label_count]},
        "words": {"logits": [*sizes, len(VOCABULARY)]},
        "spans": {"start_logits": list(sizes), "end_logits": list(sizes)},
    }
    constants = {**tables, "last": np.array([-1]), "first": np.array([1])}
    model = onnx_model(nodes, values({ids: sizes, mask: sizes}, INT64), values(shapes[kind]), constants, opset=13)
    onnx.checker.check_model(model)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    onnx.save(model, path)
    tokenizer().save(str(folder / "tokenizer.json"))
    config = {
        "architectures": [ARCHITECTURES[kind]],
        "model_type": "bert",
        "vocab_size": len(VOCABULARY),
        "hidden_size": WIDTH,
        "max_position_embeddings": 32,
        "pad_token_id": 0,
        "num_labels": label_count,
        "id2label": {str(number): f"label {number}" for number in range(label_count)},
    }
    write_json(folder / "config.json", config)
    return path


def exported(path: Path, tmp_path: Path, x: Any = None, **options: Any) -> Path:
    """Export a file, with a sample if `x` is given."""
    if x is not None:
        np.savez(tmp_path / "sample.npz", x=x)
        options["valid"] = (str(tmp_path / "sample.npz"),)
    return export(path, ExportOptions(tmp_path / "models", **options), lambda _: None)


def load(path: Path, tmp_path: Path, **options: Any) -> TextModel:
    folder = exported(path, tmp_path, **options)
    assert read_manifest(folder).parity["fp32"]["original_outputs_bitwise_equal"] is True
    return TextModel("imported", 1, open_bundle(folder))


def original(path: Path, text: str, length: int | None = None, rows: int = 1) -> dict[str, Any]:
    """Outputs of the file itself for one text."""
    ids = tokenizer().encode(text).ids
    inputs = np.zeros((rows, length or len(ids)), np.int64)
    inputs[:, : len(ids)] = ids
    session = onnxruntime.InferenceSession(str(path))
    mask = np.zeros_like(inputs)
    mask[:, : len(ids)] = 1
    named = dict(zip([one.name for one in session.get_inputs()], (inputs, mask), strict=True))
    return dict(zip([one.name for one in session.get_outputs()], session.run(None, named), strict=True)) | {"length": len(ids)}


@pytest.mark.parametrize(
    ("sizes", "names"),
    [(("B", "T"), "input_ids attention_mask"), ((1, "T"), "input_ids attention_mask"), ((2, 16), "ids input_mask")],
)
def test_an_encoder_of_free_or_fixed_size_embeds_as_its_file(sizes: tuple[Any, Any], names: str, tmp_path: Path) -> None:
    path = encoder(tmp_path / "files", "hidden", sizes, names)
    with closing(load(path.parent, tmp_path)) as model:
        texts = ["one two three", "four", "five six", "one", "nine eight seven two one"]
        results = model.run(EMBEDDING_TASK, texts)
        for text, result in zip(texts, results, strict=True):
            length, rows = (sizes[1] if isinstance(sizes[1], int) else None), (sizes[0] if isinstance(sizes[0], int) else 1)
            expected = original(path, text, length, rows)
            states = expected["last_hidden_state"][0, : expected["length"]]
            np.testing.assert_allclose(result.values, states.mean(0), rtol=1e-5, atol=1e-6)


def test_heads_give_the_probabilities_of_their_logits(tmp_path: Path) -> None:
    files = {kind: encoder(tmp_path / kind, kind) for kind in ("labels", "words", "spans")}
    models = {kind: load(path, tmp_path, name=kind) for kind, path in files.items()}
    try:
        label = models["labels"].run(TEXT_CLASSIFICATION_TASK, ["one two"])[0].labels
        logits = original(files["labels"], "one two")["logits"][0]
        powers = np.exp(logits - logits.max())
        assert {each.index: pytest.approx(each.score, abs=1e-6) for each in label} == dict(enumerate(powers / powers.sum()))

        filled = models["words"].run(FILL_MASK_TASK, ["one [MASK] two"], top_k=2)[0].masks[0].candidates
        words = original(files["words"], "one [MASK] two")["logits"][0, 2]
        assert [each.token for each in filled] == np.argsort(-words)[:2].tolist()
        assert "embedding" not in models["words"].capabilities

        answer = models["spans"].run(QUESTION_ANSWERING_TASK, [("where", "anna lives in paris")])[0].answers[0]
        assert answer.text
    finally:
        for model in models.values():
            model.close()


@pytest.mark.parametrize("rows", ["B", 1])
def test_answers_that_depend_on_padding_need_a_file_for_one_text_at_once(rows: Any, tmp_path: Path) -> None:
    path = encoder(tmp_path / "files", "labels", (rows, "T"))
    model = onnx.load(path)
    [inside] = [node for node in model.graph.node if node.op_type == "Cast"]
    inside.CopyFrom(helper.make_node("CastLike", ["ones", "rows"], ["inside"]))  # padding counts as text does
    model.graph.node.insert(0, helper.make_node("Add", ["input_ids", "one"], ["next"]))
    model.graph.node.insert(1, helper.make_node("Div", ["next", "next"], ["ones"]))
    model.graph.initializer.append(numpy_helper.from_array(np.array(1), "one"))
    model.opset_import[0].version = 15
    onnx.save(model, path)
    if rows == 1:
        with closing(load(path, tmp_path)) as served:
            assert served.run(TEXT_CLASSIFICATION_TASK, ["one two"])
    else:
        with pytest.raises(
            ParityError, match=r"answer depends on the rows or the padding .* again with a first dimension of 1"
        ):
            exported(path, tmp_path)


def test_masks_are_filled_by_a_file_for_one_text_at_once(tmp_path: Path) -> None:
    path = encoder(tmp_path / "files", "words", (1, "T"))
    with closing(load(path, tmp_path)) as model:
        texts = ["one [MASK] two", "[MASK] three"]
        for text, result in zip(texts, model.run(FILL_MASK_TASK, texts, top_k=1), strict=True):
            place = tokenizer().encode(text).tokens.index("[MASK]")
            assert result.masks[0].candidates[0].token == original(path, text)["logits"][0, place].argmax()


def test_one_label_has_the_sigmoid_of_its_logit(tmp_path: Path) -> None:
    """Import the folder of a CrossEncoder, which has the modules of an encoder."""
    path = encoder(tmp_path / "one", "labels", label_count=1)
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}]
    write_json(path.parent / "modules.json", modules)
    with closing(load(path, tmp_path)) as model:
        [label] = model.run(TEXT_CLASSIFICATION_TASK, ["one two"])[0].labels
    [[logit]] = original(path, "one two")["logits"]
    assert label.score == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-6)


def test_long_texts_of_a_file_are_bounded_by_the_memory(tmp_path: Path) -> None:
    path = encoder(tmp_path / "files", "hidden")
    edit_json(path.parent / "config.json", max_position_embeddings=2_000, num_attention_heads=3)
    with closing(load(path, tmp_path)) as model:
        assert (model.manifest.limits.max_tokens, model.manifest.pair_bytes) == (2_000, 24)


def test_an_encoder_of_another_family_has_the_tokens_of_its_tokenizer_file(tmp_path: Path) -> None:
    path = encoder(tmp_path / "files", "labels")
    config, classes = path.parent / "config.json", path.parent / "tokenizer_config.json"
    write_json(classes, {"tokenizer_class": "FunnelTokenizer", "model_input_names": ["input_ids"]})
    edit_json(config, model_type="funnel", hidden_size=None, d_model=WIDTH)
    with closing(load(path, tmp_path)) as model:
        [best, *_] = model.run(TEXT_CLASSIFICATION_TASK, ["one two"])[0].labels
    assert best.index == np.argmax(original(path, "one two")["logits"][0])
    edit_json(config, max_position_embeddings=None)
    with pytest.raises(SourceError, match=r"config\.json: max_position_embeddings: None, expected a number; add that of"):
        exported(path, tmp_path)
    edit_json(config, max_position_embeddings=32)
    edit_json(path.parent / "tokenizer.json", post_processor=None)
    with pytest.raises(SourceError, match="no tokenizer is known for 'FunnelTokenizer' or 'funnel'"):
        exported(path, tmp_path)


@pytest.mark.parametrize("kind", ["roberta", "data2vec-text", "longformer"])
def test_positions_counted_from_the_padding_bound_the_texts(kind: str, tmp_path: Path) -> None:
    path = encoder(tmp_path / "files", "hidden")
    edit_json(path.parent / "config.json", model_type=kind)
    assert read_manifest(exported(path, tmp_path)).limits.max_tokens == 32 - 1


def test_dense_layers_beside_a_file_are_refused(tmp_path: Path) -> None:
    path = encoder(tmp_path / "files", "hidden")
    write_pooling(path.parent, {"pooling_mode": "mean"}, "Dense")
    with pytest.raises(SourceError, match=r"modules\.json: Dense and LayerNorm are not supported beside an ONNX file"):
        load(path, tmp_path)


def test_a_recorded_number_of_values_beside_a_file_is_refused(tmp_path: Path) -> None:
    path = encoder(tmp_path / "files", "hidden")
    write_pooling(path.parent, {"pooling_mode": "mean"})
    write_json(path.parent / "config_sentence_transformers.json", {"truncate_dim": 8})
    with pytest.raises(SourceError, match=r"truncate_dim is not supported beside an ONNX file; remove it, and let requests"):
        load(path, tmp_path)


def test_a_file_takes_its_settings_from_another_folder(tmp_path: Path) -> None:
    path = encoder(tmp_path / "files", "hidden")
    alone = tmp_path / "bare.onnx"
    alone.write_bytes(path.read_bytes())
    load(alone, tmp_path, config_from=path.parent).close()
    (path.parent / "config.json").unlink()
    assert read_manifest(exported(alone, tmp_path, name="bare")).task == "tensors"


def test_an_encoder_without_hidden_states_is_refused(tmp_path: Path) -> None:
    path = encoder(tmp_path / "files", "hidden")
    edit_json(path.parent / "config.json", hidden_size=5)
    model = onnx.load(path)
    model.graph.output[0].name = model.graph.node[7].output[0] = "states"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(SourceError, match="no output has hidden states"):
        exported(path, tmp_path)


@pytest.mark.parametrize("name", ["YolosForObjectDetection", "Wav2Vec2ForSequenceClassification", "CLIPModel"])
def test_classes_without_a_task_take_plain_tensors(name: str, tmp_path: Path) -> None:
    """Their folders have the processor of another library, which makes no inputs here."""
    path = plain(tmp_path / "model.onnx", RELU, {"x": ["rows", 3, 8, 8]}, {"y": ["rows", 3, 8, 8]})
    write_json(tmp_path / "config.json", {"architectures": [name], "model_type": "odd"})
    write_json(tmp_path / "preprocessor_config.json", {"image_processor_type": "YolosImageProcessor"})
    said = list[str]()
    manifest = read_manifest(export(path.parent, ExportOptions(tmp_path / "models"), said.append))
    assert (manifest.task, said[0]) == ("tensors", f"plain tensors: {name} has no task here")
    assert "image files not carried over: " in said[1]
    assert manifest.image is None


def test_a_file_in_the_folder_onnx_has_its_settings_above(tmp_path: Path) -> None:
    """The layout of transformers.js has config.json above."""
    path = encoder(tmp_path / "files", "hidden")
    below = path.parent / "onnx/model_q4.onnx"
    below.parent.mkdir()
    path.rename(below)
    assert read_manifest(exported(below, tmp_path)).task == "text-embedding"
    remedy = r"; to serve an ONNX file, name it instead of the folder: onnx/model_q4\.onnx$"
    with pytest.raises(SourceError, match=f"holds no weights.*{remedy}"):
        open_weights(path.parent)
    (path.parent / "config.json").unlink()
    with pytest.raises(SourceError, match=rf"missing config\.json{remedy}"):
        exported(path.parent, tmp_path)


def test_a_folder_of_onnxruntime_genai_needs_the_original_config(tmp_path: Path) -> None:
    path = row_wise(tmp_path / "model.onnx", False)
    write_json(tmp_path / "genai_config.json", {})
    with pytest.raises(SourceError, match=r"has genai_config\.json, but no config\.json: copy that of the original checkpoint"):
        exported(tmp_path, tmp_path)
    assert read_manifest(exported(path, tmp_path)).task == "tensors"


def row_wise(path: Path, mixes_rows: bool) -> Path:
    """Write `y = x * 2`, or a graph in which every row depends on all."""
    nodes = [helper.make_node("Add", ["x", "x"], ["y"])]
    if mixes_rows:
        nodes = [helper.make_node("ReduceSum", ["x", "first"], ["sum"]), helper.make_node("Add", ["x", "sum"], ["y"])]
    shape, constants = ["rows", 3, "width"], {"first": np.array([0])} if mixes_rows else {}
    onnx.save(onnx_model(nodes, values({"x": shape}), values({"y": shape}), constants, opset=17), path)
    return path


@pytest.mark.parametrize("mixes_rows", [False, True])
def test_requests_share_batches_only_if_rows_are_independent(mixes_rows: bool, tmp_path: Path) -> None:
    path = row_wise(tmp_path / "rows.onnx", mixes_rows)
    folder = exported(path, tmp_path)
    with closing(TensorModel("rows", 1, open_bundle(folder))) as model:
        assert model.manifest.batches is not mixes_rows
        x = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
        np.testing.assert_array_equal(model.run({"x": x})["y"], x + (x.sum(0) if mixes_rows else x))


@pytest.mark.parametrize(
    "make", [lambda path: row_wise(path, False), lambda path: encoder(path.parent, "hidden")], ids=["tensors", "encoder"]
)
def test_int8_weights_of_other_programs_are_multiplied_exactly(
    make: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processors whose fast kernels overflow with weights of 8 bits run the bundle as the original file."""
    path = make(tmp_path / "model.onnx")
    model = onnx.load(path)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((64, 64), np.int8), "most_weights"))
    onnx.save(model, path)
    exact: list[bool] = []
    entries = session.cpu_entries
    monkeypatch.setattr(session, "int8_saturates", lambda: True)
    monkeypatch.setattr(
        session,
        "cpu_entries",
        lambda threads, exact_products, *others: exact.append(exact_products) or entries(threads, exact_products, *others),
    )
    assert list(read_manifest(exported(path, tmp_path)).precisions) == ["int8"]
    assert exact
    assert all(exact)


def plain(
    path: Path, nodes: list[tuple[str, str, str]], inputs: dict[str, Any], outputs: dict[str, Any], kind: int = FLOAT
) -> Path:
    """Write a graph of nodes (type, names of inputs, output) over axis 0; shapes may be None. Outputs are of this kind."""
    made = [
        helper.make_node(operator, names.split(), [output], **({"axes": [0]} if operator == "ReduceMean" else {}))
        for operator, names, output in nodes
    ]
    onnx.save(onnx_model(made, values(inputs), values(outputs, kind), opset=17), path)
    return path


RELU = [("Relu", "x", "y")]


@pytest.mark.parametrize("shape", [["rows", 1], ["rows"], ["rows", 4]])
@pytest.mark.parametrize("valid", [None, np.float32([0.5]), np.float32([1, 2, 3, 4])])
def test_rows_of_one_value_show_that_they_depend_on_each_other(shape: list[Any], valid: Any, tmp_path: Path) -> None:
    """`y` is the distance to the mean of all rows; random values, one row or four rows are the samples."""
    path = plain(tmp_path / "mean.onnx", [("ReduceMean", "x", "mean"), ("Sub", "x mean", "y")], {"x": shape}, {"y": shape})
    x = None
    if valid is not None:
        x = np.broadcast_to(valid.reshape(-1, *[1] * (len(shape) - 1)), [len(valid), *shape[1:]])
    assert read_manifest(exported(path, tmp_path, x)).batches is False


@pytest.mark.parametrize("value", [np.int64([[7, 7]]), np.int64([[0, 0]]), np.bool_([[True, True]])])
def test_constant_integers_of_samples_are_varied(value: Any, tmp_path: Path) -> None:
    path = plain(tmp_path / "copy.onnx", [("Identity", "x", "y")], {"x": ["rows", 2]}, {"y": ["rows", 2]})
    model = onnx.load(path)
    for tensor in (*model.graph.input, *model.graph.output):
        tensor.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(value.dtype)
    onnx.save(model, path)
    assert read_manifest(exported(path, tmp_path, value)).batches


def test_generated_inputs_are_not_larger_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plain(tmp_path / "relu.onnx", RELU, {"x": ["rows", "width"]}, {"y": ["rows", "width"]})
    tried: list[Any] = []
    monkeypatch.setattr(tensors, "MOST_VALUES", 20)
    monkeypatch.setattr(tensors, "try_run", lambda _, samples, *__, **___: tried.extend(samples) or [{}])
    tensors.TensorsFamily(find_graphs(path), (), Folder(tmp_path))._generated()
    assert {one["x"].shape for one in tried} == {(1, 16), (1, 1)}


def test_the_dimension_of_rows_may_be_another_than_the_first(tmp_path: Path) -> None:
    """The state of an LSTM must have as many rows as the input."""
    nodes = [
        helper.make_node("MatMul", ["x", "weights"], ["product"]),
        helper.make_node("ReduceMean", ["state"], ["mean"], axes=[0], keepdims=0),
        helper.make_node("Concat", ["product", "mean"], ["y"], axis=1),
    ]
    path, inputs = tmp_path / "state.onnx", {"x": ["batch", "length"], "state": [2, "batch", 4]}
    weights = np.ones((16, 4), np.float32)
    onnx.save(onnx_model(nodes, values(inputs), values({"y": ["batch", 8]}), {"weights": weights}, opset=17), path)
    assert read_manifest(exported(path, tmp_path)).inputs["state"].shape == (2, -1, 4)


@pytest.mark.parametrize("last", [False, True])
def test_images_of_any_size_have_three_colours(last: bool, tmp_path: Path) -> None:
    """Optimum's files declare four free dimensions; the graph takes no other number of colours."""
    turned = helper.make_node("Transpose", ["x"], ["first"], perm=[0, 3, 1, 2] if last else [0, 1, 2, 3])
    nodes = [turned, helper.make_node("Conv", ["first", "kernel"], ["y"])]
    shape, path = ["rows", "a", "b", "c"], tmp_path / "conv.onnx"
    model = onnx_model(
        nodes, values({"x": shape}), values({"y": shape}), {"kernel": np.ones((2, 3, 1, 1), np.float32)}, opset=17
    )
    onnx.save(model, path)
    with closing(TensorModel("conv", 1, open_bundle(exported(path, tmp_path)))) as served:
        assert (served.manifest.inputs["x"].shape, served.manifest.batches) == ((-1,) * 4, True)


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"inputs": {"x": {"datatype": "FP32", "shape": [-1, 3]}}}, r"inputs\.x\.shape is \[-1, 3\], the graph takes \[2, 3\]"),
        ({"inputs": {"x": {"datatype": "UINT16", "shape": [2, 3]}}}, "inputs.x.datatype is UINT16, the graph takes float32"),
        (
            {"inputs": {"z": {"datatype": "FP32", "shape": [2, 3]}}},
            "inputs.z: the graph has no such input; inputs: x is missing, which the graph takes",
        ),
        ({"outputs": {"z": {"datatype": "FP32", "shape": [2, 3]}}}, "outputs.z: the graph has no such output"),
    ],
)
def test_a_manifest_with_other_tensors_than_its_graph_is_rejected(
    members: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    path = plain(tmp_path / "relu.onnx", RELU, {"x": [2, 3]}, {"y": [2, 3]})
    folder = exported(path, tmp_path)
    edit_json(folder / "bundle.json", **members)
    with pytest.raises(BundleError, match=problem):
        TensorModel("relu", 1, open_bundle(folder))


def test_random_numbers_are_drawn_anew_by_each_request(tmp_path: Path) -> None:
    """Voices of VITS draw numbers. Here the first sizes that are tried fail, after numbers have been drawn."""
    path = tmp_path / "noise.onnx"
    nodes = [("RandomNormalLike", "x", "noise"), ("Add", "x noise", "moved"), ("Mul", "moved weights", "y")]
    made = [helper.make_node(operator, names.split(), [output]) for operator, names, output in nodes]
    inputs, outputs = values({"x": ["rows", "any"]}), values({"y": ["rows", 3]})
    onnx.save(onnx_model(made, inputs, outputs, {"weights": np.ones((1, 3), np.float32)}, opset=17), path)
    with closing(TensorModel("noise", 1, open_bundle(exported(path, tmp_path)))) as served:
        first, second = (served.run({"x": np.zeros((1, 3), np.float32)})["y"] for _ in range(2))
        assert not np.array_equal(first, second)
        assert not served.manifest.batches


def test_integers_may_all_have_to_be_zero(tmp_path: Path) -> None:
    path, node = tmp_path / "table.onnx", helper.make_node("Gather", ["speakers", "x"], ["y"])
    table = {"speakers": np.ones((1, 2), np.float32)}
    onnx.save(onnx_model([node], values({"x": ["rows", 8]}, INT64), values({"y": ["rows", 8, 2]}), table, opset=17), path)
    with closing(TensorModel("table", 1, open_bundle(exported(path, tmp_path)))) as served:
        assert served.run({"x": np.zeros((3, 8), np.int64)})["y"].shape == (3, 8, 2)


def test_a_dimension_may_be_0_where_a_sample_has_it(tmp_path: Path) -> None:
    """A cache of keys that is empty before the first step."""
    path = plain(tmp_path / "relu.onnx", RELU, {"x": ["rows", "past", 2]}, {"y": ["rows", "past", 2]})
    ordinary = open_bundle(exported(path, tmp_path, np.ones((1, 1, 2), np.float32)))
    refusal = pytest.raises(InvalidInputError, match=r"shape \[1, 0, 2\] does not fit \[any, any, 2\], with at least one value")
    with closing(TensorModel("ordinary", 1, ordinary)) as served, refusal:
        served.run({"x": np.ones((1, 0, 2), np.float32)})
    folder = exported(path, tmp_path, np.ones((1, 0, 2), np.float32))
    with closing(TensorModel("cache", 1, open_bundle(folder))) as served:
        for past in (0, 3):
            assert served.run({"x": np.ones((1, past, 2), np.float32)})["y"].shape == (1, past, 2)
        with pytest.raises(
            InvalidInputError, match=r"shape \[0, 1, 2\] does not fit \[any, any, 2\]; 0 only in dimensions \[1\]"
        ):
            served.run({"x": np.ones((0, 1, 2), np.float32)})
    for empty in ([2], [-1], [3], 1):
        edit_json(folder / "bundle.json", inputs={"x": {"datatype": "FP32", "shape": [-1, -1, 2], "empty": empty}})
        with pytest.raises(BundleError, match=r"inputs\.x\.empty is .*, expected numbers of dimensions, from 0, of any size"):
            read_manifest(folder)


@pytest.mark.parametrize(("value", "batches"), [(0.5, True), (0.0, False)])
def test_samples_that_cannot_differ_do_not_show_independence(value: float, batches: bool, tmp_path: Path) -> None:
    path = plain(tmp_path / "relu.onnx", RELU, {"x": ["rows", 2]}, {"y": ["rows", 2]})
    assert read_manifest(exported(path, tmp_path, np.full((1, 2), value, np.float32))).batches is batches


def test_a_missing_shape_is_that_of_the_samples(tmp_path: Path) -> None:
    path = plain(tmp_path / "relu.onnx", RELU, {"x": None}, {"y": None})
    with pytest.raises(SourceError, match="input 'x' has no shape: declare it in the file, or pass --valid"):
        exported(path, tmp_path)
    manifest = read_manifest(exported(path, tmp_path, np.float32([[1, -2, 3]])))
    assert (manifest.inputs["x"].shape, manifest.outputs["y"].shape, manifest.batches) == ((-1, -1), (-1, -1), True)


@pytest.mark.parametrize(
    ("nodes", "inputs", "outputs", "kind", "message"),
    [
        (RELU, {"x": ["rows", 0]}, {"y": ["rows", 0]}, FLOAT, "dimension 1 of x is 0"),
        ([("RandomUniform", "", "y")], {}, {"y": [3]}, FLOAT, r"odd\.onnx: the model has no inputs"),
        (
            RELU,
            {"x": [1]},
            {"y": [1]},
            TensorProto.BFLOAT16,
            "tensor 'y': its type is BFLOAT16; supported: BOOL, INT8, .*BYTES; add",
        ),
        ([("SequenceConstruct", "x x", "y")], {"x": [1]}, {}, FLOAT, "tensor 'y': .* sequence_type; add nodes such as"),
    ],
)
def test_plain_tensors_that_cannot_be_served_are_named(
    nodes: Any, inputs: Any, outputs: Any, kind: int, message: str, tmp_path: Path
) -> None:
    path = plain(tmp_path / "odd.onnx", nodes, inputs, outputs, kind)
    if not outputs:
        model = onnx.load(path)
        model.graph.output.append(helper.make_tensor_sequence_value_info("y", FLOAT, None))
        onnx.save(model, path)
    with pytest.raises(SourceError, match=message):
        exported(path, tmp_path)


@pytest.mark.parametrize(
    ("declared", "shape"), [(["rows", 4], (-1, -1)), (["rows"], (-1, -1)), ([1, 3], (-1, 3)), ([1], (-1, -1))]
)
def test_shapes_that_outputs_declare_wrongly_are_those_of_results(
    declared: list[Any], shape: tuple[int, ...], tmp_path: Path
) -> None:
    """Some exporters and converters declare other sizes or dimensions than their graphs compute."""
    path, said = plain(tmp_path / "odd.onnx", RELU, {"x": ["rows", 3]}, {"y": declared}), list[str]()
    folder = export(path, ExportOptions(tmp_path / "models"), said.append)
    assert any(line.startswith("output y is declared as FP32 [") for line in said)
    with closing(TensorModel("odd", 1, open_bundle(folder))) as model:
        assert (model.manifest.outputs["y"].shape, model.manifest.batches) == (shape, True)
        assert model.run({"x": np.float32([[1, -2, 3]] * 2)})["y"].tolist() == [[1, 0, 3]] * 2


@pytest.mark.parametrize("kind", [FLOAT, TensorProto.FLOAT16])
def test_classifiers_get_the_same_pixels_as_their_files(kind: int, tmp_path: Path) -> None:
    """The last bit of a pixel changes the results, as where int8 graphs round it; inputs and outputs may have 16 bits."""
    node = helper.make_node
    nodes = [
        node("Cast", ["pixel_values"], ["whole"], to=FLOAT),
        node("Mul", ["whole", "much"], ["large"]),
        node("Sin", ["large"], ["rounded"]),
        node("Mul", ["rounded", "signs"], ["changed"]),
        node("ReduceSum", ["changed", "axes"], ["sums"], keepdims=0),
        node("Cast", ["sums"], ["logits"], to=kind),
    ]
    signs = np.random.default_rng(1).normal(0, 0.1, (3, 8, 8)).astype(np.float32)
    inputs, outputs = (values(one, kind) for one in ({"pixel_values": ["rows", 3, 8, 8]}, {"logits": ["rows", 3]}))
    constants = {"signs": signs, "axes": np.array([2, 3]), "much": np.float32(1e4), "most_weights": np.ones((64, 64), np.int8)}
    path = tmp_path / "files/model.onnx"
    path.parent.mkdir()
    onnx.save(onnx_model(nodes, inputs, outputs, constants, opset=17), path)
    labels = {str(number): f"label {number}" for number in range(3)}
    write_json(
        path.parent / "config.json", {"architectures": ["ViTForImageClassification"], "model_type": "vit", "id2label": labels}
    )
    processor = {"image_processor_type": "ViTImageProcessor", "size": {"height": 8, "width": 8}}
    means = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
    write_json(path.parent / "preprocessor_config.json", {**processor, **means})
    assert read_manifest(exported(path.parent, tmp_path)).task == "image-classification"


def test_shapes_inside_a_graph_are_kept(tmp_path: Path) -> None:
    """The runtime fuses nodes by them: without them PP-OCRv6's recognizer did not give the same bits."""
    nodes = [("Relu", "x", "inside"), ("Neg", "inside", "y")]
    path = plain(tmp_path / "two.onnx", nodes, {"x": ["rows", 3]}, {"y": ["rows", 3]})
    model = onnx.load(path)
    model.graph.value_info.extend(values({"inside": ["rows", 3]}))
    onnx.save(model, path)
    written = onnx.load(exported(path, tmp_path) / "graph.fp32.onnx", load_external_data=False)
    assert [one.name for one in written.graph.value_info] == ["inside"]


def test_a_model_without_standard_operators_has_no_version_of_them(tmp_path: Path) -> None:
    """Trees that onnxmltools converts have the operators of ai.onnx.ml only."""
    node = helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[1.0], scale=[2.0])
    graph = helper.make_graph([node], "graph", values({"x": ["rows", 2]}), values({"y": ["rows", 2]}))
    path = tmp_path / "trees.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 3)], ir_version=8), path)
    with closing(TensorModel("trees", 1, open_bundle(exported(path, tmp_path)))) as model:
        assert model.run({"x": np.float32([[2, 3]])})["y"].tolist() == [[2, 4]]


@pytest.mark.parametrize("mixes_rows", [False, True])
@pytest.mark.parametrize("samples", [False, True])
def test_texts_are_words_that_the_graph_knows(mixes_rows: bool, samples: bool, tmp_path: Path) -> None:
    """`y` is the place of a word among three, and of all others -1; from this, those of all rows may be subtracted."""
    places = helper.make_node(
        "LabelEncoder",
        ["x"],
        ["place"],
        domain="ai.onnx.ml",
        keys_strings=["cat", "dog", "M\xfcnchen"],
        values_floats=[3.0, 5.0, 9.0],
        default_float=-1.0,
    )
    mean = helper.make_node("ReduceMean", ["place"], ["mean"], axes=[0])
    nodes = [places, mean, helper.make_node("Sub", ["place", "mean" if mixes_rows else "zero"], ["y"])]
    shape, constants = ["rows", 1], {"zero": np.float32(0)}
    model = onnx_model(nodes, values({"x": shape}, TensorProto.STRING), values({"y": shape}), constants, opset=17)
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 2))
    onnx.save(model, tmp_path / "words.onnx")
    texts = np.array([["dog"], ["M\xfcnchen"]])
    folder = exported(tmp_path / "words.onnx", tmp_path, np.char.encode(texts, "utf-8") if samples else None)
    with closing(TensorModel("words", 1, open_bundle(folder))) as served:
        assert served.manifest.batches is not mixes_rows
        assert served.run({"x": texts})["y"].tolist() == ([[-2], [2]] if mixes_rows else [[5], [9]])
    np.savez(tmp_path / "sample.npz", x=texts.astype(object))
    with pytest.raises(SourceError, match=r"it holds objects; save texts with array\.astype\(str\)"):
        export(tmp_path / "words.onnx", ExportOptions(tmp_path / "models", valid=[str(tmp_path / "sample.npz")]), print)


@pytest.mark.parametrize("labels", [["cat", "dog"], [3, 12]])
def test_maps_of_probabilities_become_columns_with_labels(labels: list[Any], tmp_path: Path) -> None:
    """skl2onnx writes maps by default; those of the original file are compared with the columns."""
    kind = "strings" if labels[0] == "cat" else "int64s"
    names = {f"classlabels_{kind}": labels}
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", **names)
    key = TensorProto.STRING if labels[0] == "cat" else INT64
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(key, helper.make_tensor_type_proto(FLOAT, [])))
    graph = helper.make_graph([node], "graph", values({"x": ["rows", 2]}), [helper.make_value_info("y", maps)])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 1)], ir_version=8), tmp_path / "maps.onnx"
    )
    with closing(TensorModel("maps", 1, open_bundle(exported(tmp_path / "maps.onnx", tmp_path)))) as model:
        assert (model.manifest.batches, model.labels) == (True, tuple(map(str, labels)))
        found = model.run({"x": np.float32([[0.25, 0.75]])})["y"]
        assert [(one.label, one.score) for one in model.rank("y", found, 1)[0]] == [(str(labels[1]), 0.75)]


def test_locales_that_servers_lack_are_replaced() -> None:
    def normalizer(**attributes: str) -> onnx.NodeProto:
        return helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="LOWER", **attributes)

    nodes = [normalizer(), normalizer(locale="en_US"), normalizer(locale="de_DE.UTF-8")]
    shape = {"x": ["rows"]}, {"y": ["rows"]}
    model = onnx_model(nodes, *(values(one, TensorProto.STRING) for one in shape), opset=17)
    assert replace_locales(model) == 2
    found = [{one.name: one.s for one in node.attribute}["locale"] for node in model.graph.node]
    assert found == [b"C.UTF-8", b"C.UTF-8", b"de_DE.UTF-8"]


def test_images_and_labels_around_plain_tensors(tmp_path: Path) -> None:
    """`y` is the mean of each colour of an image, which labels.txt names; the manifest resizes and normalizes."""
    nodes = [helper.make_node("ReduceMean", ["x"], ["y"], axes=[2, 3], keepdims=0)]
    path = tmp_path / "files/colours.onnx"
    path.parent.mkdir()
    onnx.save(onnx_model(nodes, values({"x": ["rows", 3, 8, 8]}), values({"y": ["rows", 3]}), opset=13), path)
    size = {"height": 8, "width": 8}
    processor = {"image_processor_type": "ViTImageProcessor", "size": size, "image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    write_json(path.parent / "preprocessor_config.json", processor)
    (path.parent / "labels.txt").write_bytes(b"\xef\xbb\xbfred\r\ngreen\r\nblue\r\n")  # as editors on Windows save it
    with closing(TensorModel("colours", 1, open_bundle(exported(path, tmp_path)))) as model:
        picture = png((0, 255, 51), (31, 17))
        found = model.run({"x": model.read_images("x", [picture] * 2)})["y"]
        np.testing.assert_allclose(found, [[-2, 2, -1.2]] * 2, rtol=1e-6)
        assert [[one.label for one in row] for row in model.rank("y", found, 3)] == [["green", "blue", "red"]] * 2
        request = pb.ModelInferRequest(**infer_request("colours", "", {"x": [picture] * 2}, {"y": 2}))
        arrays, sent = inputs_from(request, ())
        assert (arrays, sent) == ({}, {"x": [picture] * 2})
        answer = INFER.result(whole_response(*response_to(request, model, {"y": found})))["y"]
        assert (answer.datatype, answer.shape) == ("BYTES", (2, 2))
        assert [one.rpartition(":")[2] for one in answer.strings] == ["green", "blue"] * 2
        for name, files, message in (("z", [b""], "it takes no image files"), ("x", [b"%PDF"], "a PDF document")):
            with pytest.raises(InvalidInputError, match=message):
                model.read_images(name, files)
        with pytest.raises(InvalidInputError, match="it has no labels; outputs with labels: y"):
            model.rank("x", found, 1)
    (tmp_path / "picture.png").write_bytes(picture)
    given = ["--models", str(tmp_path / "models"), "--image", f"x={tmp_path / 'picture.png'}", "--labels"]
    printed = CliRunner().invoke(infer, [*given, "y=2"]).output.splitlines()
    assert [line.rpartition(":")[2] for line in printed] == ["label", "green", "blue"]
    assert "--labels y=0: '0' is no number of labels" in CliRunner().invoke(infer, [*given, "y=0"]).output
    for content, message in ((b"red\n", ": 0 outputs fit"), (b"gr\xfcn\n", " cannot be read as UTF-8")):
        (path.parent / "labels.txt").write_bytes(content)
        with pytest.raises(SourceError, match=rf"labels\.txt{message}"):
            exported(path, tmp_path)


@pytest.mark.parametrize("external", [False, True])
def test_weights_of_four_bits_and_strings_are_kept(external: bool, tmp_path: Path) -> None:
    """`y = x @ weights + (words[place] == "b")`, weights of 4 bits; both are larger than what stays inside a graph."""
    chance = np.random.default_rng(4)
    weights = helper.make_tensor("weights", TensorProto.INT4, [64, 63], chance.integers(-8, 8, 64 * 63))
    words = helper.make_tensor("words", TensorProto.STRING, [300], [b"a", b"b", b"longer"] * 100)
    node = helper.make_node
    nodes = [
        node("DequantizeLinear", ["weights", "scale"], ["whole"]),
        node("MatMul", ["x", "whole"], ["product"]),
        node("Gather", ["words", "place"], ["word"]),
        node("Equal", ["word", "wanted"], ["equal"]),
        node("Cast", ["equal"], ["one"], to=FLOAT),
        node("Add", ["product", "one"], ["y"]),
    ]
    wanted = helper.make_tensor("wanted", TensorProto.STRING, [1], [b"b"])
    constants = {"weights": weights, "words": words, "scale": np.float32(0.1), "wanted": wanted}
    inputs = [*values({"x": [2, 64]}), *values({"place": [1]}, INT64)]
    path, model = tmp_path / "packed.onnx", onnx_model(nodes, inputs, values({"y": [2, 63]}), constants)
    onnx.save(model, path, save_as_external_data=external, location="packed.bin", size_threshold=1_000)
    bundle = open_bundle(exported(path, tmp_path))
    with closing(TensorModel("packed", 1, bundle)) as served:
        given = {"x": chance.normal(size=(2, 64)).astype(np.float32), "place": np.array([1])}
        [expected] = onnxruntime.InferenceSession(str(path)).run(None, given)
        np.testing.assert_array_equal(served.run(given)["y"], expected)
        assert bundle.path("weights.fp32.bin").stat().st_size == 64 * 63 // 2
