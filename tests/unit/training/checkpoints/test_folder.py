"""Faulty checkpoint folders of every kind: each fault is named, all faults of a folder at once. Averaging of weights."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from triptych_training.checkpoints.encoder import (
    ImagePreprocessing,
    TextCheckpoint,
    TrainedImageClassifier,
    load_bert_checkpoint,
    load_image_checkpoint,
    save_bert_checkpoint,
    save_image_checkpoint,
)
from triptych_training.checkpoints.folder import average_weights, load_weights, save_weights
from triptych_training.checkpoints.translation import Checkpoint, load_checkpoint, save_checkpoint
from triptych_training.errors import CheckpointError
from triptych_training.models.vit import Vit, VitConfig

from ..toy import PAIRS, make_model
from ..toy import TOKENIZER as BPE
from ..toy_text import TOKENIZER, make_bert

VIT = VitConfig(3, 8, 4, model_dim=16, heads=2, feedforward_dim=24, layers=2)


@dataclass(frozen=True)
class Folder:
    path: Path
    load: Callable[[Path], object]
    shape: str  # config.json's member
    prefix: str  # of the encoder layers' weights

    def fault(self) -> str:
        with pytest.raises(CheckpointError) as caught:
            self.load(self.path)
        return str(caught.value)

    def change(self, edit: Callable[[dict[str, Any]], object]) -> None:
        path = self.path / "config.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        edit(content)
        path.write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture(params=["translation", "bert", "vit"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    path = tmp_path / "model"
    match request.param:
        case "translation":
            save_checkpoint(Checkpoint(make_model(vocabulary_size=290), BPE, "en", "de", samples=PAIRS[:5]), path)
            return Folder(path, load_checkpoint, "transformer", "encoder")
        case "bert":
            save_bert_checkpoint(TextCheckpoint(make_bert(), TOKENIZER, samples=("the cat", ("the cat", "eats"))), path)
            return Folder(path, load_bert_checkpoint, "bert", "bert")
    save_image_checkpoint(
        TrainedImageClassifier(Vit(VIT), ("no", "yes", "?"), ImagePreprocessing(8, 8), samples=(b"1", b"2")), path
    )
    return Folder(path, load_image_checkpoint, "vit", "")


FILES = {
    "transformer": {"config.json", "model.safetensors", "tokenizer.json", "samples.tsv"},
    "bert": {"config.json", "model.safetensors", "tokenizer.json", "samples.json"},
    "vit": {"config.json", "model.safetensors", "samples/0000.jpg", "samples/0001.jpg"},
}


def test_the_files_are_those_documented_and_missing_ones_are_named(folder: Folder) -> None:
    assert {f.relative_to(folder.path).as_posix() for f in folder.path.rglob("*") if f.is_file()} == FILES[folder.shape]
    for file in folder.path.glob("*.*"):
        file.unlink()
    required = "config.json, model.safetensors" + ("" if folder.shape == "vit" else ", tokenizer.json")
    assert folder.fault() == f"{folder.path}: not a checkpoint folder, missing {required}"


def test_the_checkpoint_inside_a_run_folder_is_named(folder: Folder) -> None:
    with pytest.raises(CheckpointError) as caught:
        folder.load(folder.path.parent)
    assert str(caught.value).endswith(f"; there is a checkpoint in: {folder.path}")


def test_all_faults_are_listed_at_once(folder: Folder) -> None:
    expected = [f"config.json: {folder.shape}: heads: 3 does not divide model_dim", "model.safetensors: damaged"]
    folder.change(lambda c: c[folder.shape].update(heads=3))
    (folder.path / "model.safetensors").write_bytes(b"\0" * 100)
    if folder.shape == "vit":
        folder.change(lambda c: c["image"].update(colour=1))
        expected.append("config.json: image: ")
    else:
        (folder.path / "tokenizer.json").write_text("{}")
        samples = next(folder.path.glob("samples.*"))
        samples.write_text('["one", ["two"]]')
        expected += ["tokenizer.json: not a tokenizer", f"{samples.name}:"]
    message = folder.fault()
    for part in expected:
        assert part in message


def test_all_differing_weights_are_listed_at_once_and_truncated_ones_are_damaged(folder: Folder) -> None:
    weights = load_file(str(folder.path / "model.safetensors"))
    layer = f"{folder.prefix}.layers.1" if folder.prefix else "layers.1"
    shape = list(weights[f"{layer}.feedforward.expand.weight"].shape)
    weights["extra"] = torch.zeros(1)
    weights[f"{layer}.feedforward.expand.weight"] = torch.zeros(3, 16)
    del weights[f"{layer}.attention.output.bias"]
    save_file(weights, str(folder.path / "model.safetensors"))
    message = folder.fault()
    path = folder.path / "model.safetensors"
    for kept in (-1, 1_000, 7, 0):
        path.write_bytes(path.read_bytes()[:kept])
        assert folder.fault().startswith(f"{path}: damaged")
    assert f"missing {layer}.attention.output.bias" in message
    assert "unexpected extra" in message
    assert f"{layer}.feedforward.expand.weight has shape [3, 16], expected {shape}" in message


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c, shape: c.update(format=2), "format 2; supported: 'triptych-{shape}' format 1"),
        (lambda c, shape: c.update(architecture="lstm"), "architecture 'lstm' format 1; supported"),
        (
            lambda c, shape: c.update(model_type="marian"),
            "of a Hugging Face model (marian), which can be exported but not trained here; supported",
        ),
        (lambda c, shape: c.pop(shape), "wrong type: {shape}"),
        (lambda c, shape: c[shape].update(colour="red"), "unexpected keyword argument 'colour'"),
        (lambda c, shape: c[shape].update(model_dim="16"), "{shape}: "),
        (lambda c, shape: c[shape].update(dropout=2), "dropout: 2 is outside [0, 1)"),
    ],
    ids=["format", "architecture", "Hugging Face", "members", "unknown field", "text for a number", "range"],
)
def test_a_wrong_configuration_is_named(folder: Folder, edit: Callable[[Any, str], object], message: str) -> None:
    folder.change(lambda c: edit(c, folder.shape))
    assert folder.fault().startswith(f"{folder.path / 'config.json'}: ")
    assert message.format(shape=folder.shape) in folder.fault()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: c.update(encoder="bart"), "encoder: 'bart' is unknown; supported: bert, modernbert, deberta"),
        (lambda c: c.update(head="summary"), "head: 'summary' is unknown; supported: pretraining, text-classification"),
        (lambda c: (c.pop("encoder"), c.pop("head"), c.update(pairs=1)), "missing or of the wrong type: encoder, head, pairs"),
    ],
)
@pytest.mark.parametrize("folder", ["bert"], indirect=True)
def test_an_unknown_encoder_or_head_is_named(folder: Folder, edit: Callable[[Any], object], message: str) -> None:
    folder.change(edit)
    assert message in folder.fault()


@pytest.mark.parametrize(
    ("name", "contents", "problem"),
    [
        ("config.json", ["", "{", "[1, 2]", '"text"'], "not "),
        ("samples.json", ["", "{", "3", '[["one"]]', "[1]"], "damaged"),
    ],
)
@pytest.mark.parametrize("folder", ["bert"], indirect=True)
def test_a_damaged_json_file_is_named(folder: Folder, name: str, contents: list[str], problem: str) -> None:
    whole = (folder.path / name).read_text()
    for content in contents:
        (folder.path / name).write_text(content)
        assert folder.fault().startswith(f"{folder.path / name}: {problem}")
    (folder.path / name).write_text(whole)
    folder.load(folder.path)


@pytest.mark.parametrize("folder", ["vit"], indirect=True)
def test_sizes_of_images_and_labels_must_match(folder: Folder) -> None:
    folder.change(lambda c: c["image"].update(height=None))
    assert "config.json: image: height: None is not a number" in folder.fault()
    folder.change(lambda c: c["image"].update(height=8))
    folder.change(lambda c: c["labels"].pop())
    assert folder.fault() == f"{folder.path / 'config.json'}: labels has 2 names, the model 3 classes"


@pytest.mark.parametrize("kind", ["translation", "bert"])
def test_a_tokenizer_must_not_have_more_pieces_than_the_model(tmp_path: Path, kind: str) -> None:
    load: Callable[[Path], object]
    if kind == "bert":
        save_bert_checkpoint(TextCheckpoint(make_bert(vocabulary_size=50), TOKENIZER), tmp_path)
        load, pieces, size = load_bert_checkpoint, TOKENIZER.get_vocab_size(), 50
    else:
        save_checkpoint(Checkpoint(make_model(vocabulary_size=270), BPE, "en", "de"), tmp_path)
        load, pieces, size = load_checkpoint, BPE.get_vocab_size(), 270
    fault = Folder(tmp_path, load, "", "").fault()
    assert fault == f"{tmp_path}/tokenizer.json: has {pieces} pieces, the model's vocabulary {size}"


def test_averages_are_means_of_equal_shapes(tmp_path: Path) -> None:
    models = [nn.Linear(3, 2) for _ in range(3)]
    for number, model in enumerate(models):
        (tmp_path / str(number)).mkdir()
        save_weights(model, tmp_path / str(number))
    mean = nn.Linear(3, 2)
    load_weights(mean, average_weights([tmp_path / str(n) for n in range(3)]), tmp_path)
    torch.testing.assert_close(mean.weight, sum(model.weight for model in models) / 3)
    torch.testing.assert_close(mean.bias, sum(model.bias for model in models) / 3)
    (tmp_path / "b").mkdir()
    with pytest.raises(CheckpointError, match=r"b/model\.safetensors: cannot be read"):
        average_weights([tmp_path / "0", tmp_path / "b"])
    save_weights(nn.Linear(3, 3), tmp_path / "b")
    with pytest.raises(CheckpointError, match=r"b: cannot be averaged with .*0: names or shapes of weights differ"):
        average_weights([tmp_path / "0", tmp_path / "b"])
