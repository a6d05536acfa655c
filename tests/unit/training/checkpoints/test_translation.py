"""Checkpoint folders: written, read, found faulty."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from triptych_training.checkpoints.translation import Checkpoint, load_checkpoint, save_checkpoint
from triptych_training.checkpoints.weights import average_weights, load_weights
from triptych_training.data.tokenizer import train_tokenizer
from triptych_training.errors import CheckpointError

from ..toy import PAIRS, make_model

TOKENIZER = train_tokenizer([text for pair in PAIRS for text in pair], 290)
MODEL = make_model(vocabulary_size=290)
WHOLE = Checkpoint(MODEL, TOKENIZER, "en", "de", {"epochs": 3}, PAIRS[:5])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_checkpoint(WHOLE, tmp_path / "model")
    return tmp_path / "model"


def fault(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    return str(caught.value)


def change(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    edit(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def change_weights(folder: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(str(folder / "model.safetensors"))
    edit(weights)
    save_file(weights, str(folder / "model.safetensors"))


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_a_checkpoint_comes_back_whole(tmp_path: Path, tied: bool) -> None:
    model = make_model(vocabulary_size=290, tie_embeddings=tied, positions="learned")
    save_checkpoint(replace(WHOLE, model=model), tmp_path)
    loaded = load_checkpoint(tmp_path)
    assert loaded.model.config == model.config
    for (name, expected), (_, tensor) in zip(model.state_dict().items(), loaded.model.state_dict().items(), strict=True):
        assert torch.equal(expected, tensor), name
    assert not loaded.model.training
    assert (loaded.source_language, loaded.target_language) == ("en", "de")
    assert loaded.provenance == {"epochs": 3}
    assert loaded.samples == PAIRS[:5]
    assert loaded.tokenizer.encode("one two.").ids == TOKENIZER.encode("one two.").ids


def test_the_folder_holds_the_documented_files_and_nothing_else(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "samples.tsv"}


def test_a_tied_matrix_is_stored_once(folder: Path) -> None:
    names = load_file(str(folder / "model.safetensors")).keys()
    assert [name for name in names if "tokens" in name or "projection" in name] == ["encoder.embedding.tokens.weight"]


def test_samples_may_be_missing_and_a_tab_in_one_is_a_space(tmp_path: Path) -> None:
    save_checkpoint(replace(WHOLE, samples=()), tmp_path / "none")
    assert list(load_checkpoint(tmp_path / "none").samples) == []
    save_checkpoint(replace(WHOLE, samples=[("one\ttwo", "three")]), tmp_path / "tab")
    assert load_checkpoint(tmp_path / "tab").samples == [("one two", "three")]


def test_missing_files_are_all_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    assert fault(tmp_path) == f"{tmp_path}: not a checkpoint folder, missing config.json, model.safetensors"


def test_all_faults_are_listed_at_once(folder: Path) -> None:
    change(folder / "config.json", lambda c: c["transformer"].update(heads=3))
    (folder / "model.safetensors").write_bytes(b"\0" * 100)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "samples.tsv").write_text("one\n")
    message = fault(folder)
    assert "config.json: transformer: heads: 3 does not divide model_dim 16" in message
    assert "model.safetensors: damaged" in message
    assert "tokenizer.json: not a tokenizer" in message
    assert "samples.tsv:1: 1 tab-separated fields" in message


def test_all_weights_that_do_not_fit_are_listed_at_once(folder: Path) -> None:
    def edit(weights: dict[str, torch.Tensor]) -> None:
        weights["decoder.extra"] = torch.zeros(1)
        del weights["encoder.layers.0.attention.output.bias"]
        weights["encoder.layers.1.feedforward.expand.weight"] = torch.zeros(3, 16)

    change_weights(folder, edit)
    message = fault(folder)
    assert "missing encoder.layers.0.attention.output.bias" in message
    assert "unexpected decoder.extra" in message
    assert "encoder.layers.1.feedforward.expand.weight has shape [3, 16], expected [24, 16]" in message


@pytest.mark.parametrize("kept", [0, 7, 1_000, -1], ids=["empty", "header cut", "header only", "last byte missing"])
def test_weights_cut_short_are_damaged(folder: Path, kept: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    assert fault(folder).startswith(f"{path}: damaged")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: c.update(format=2), "format 2; supported: 'triptych-transformer' format 1"),
        (lambda c: c.update(architecture="bert"), "architecture 'bert' format 1; supported"),
        (lambda c: (c.pop("transformer"), c.pop("target_language")), "wrong type: transformer, target_language"),
        (lambda c: c["transformer"].update(colour="red"), "unexpected keyword argument 'colour'"),
        (lambda c: c["transformer"].update(model_dim="16"), "transformer: "),
        (lambda c: c["transformer"].update(eos_id=999), "eos_id: 999 is outside the vocabulary of 290"),
    ],
    ids=["format", "architecture", "members", "unknown field", "text for a number", "token id"],
)
def test_a_wrong_configuration_is_named(folder: Path, edit: Callable[[dict[str, Any]], object], message: str) -> None:
    change(folder / "config.json", edit)
    assert fault(folder).startswith(f"{folder / 'config.json'}: ")
    assert message in fault(folder)


@pytest.mark.parametrize("content", ["", "{", "[1, 2]", '"text"'])
def test_a_configuration_that_is_no_json_object_is_named(folder: Path, content: str) -> None:
    (folder / "config.json").write_text(content)
    assert fault(folder).startswith(f"{folder / 'config.json'}: not ")


def test_a_tokenizer_with_more_pieces_than_the_model_has_rows_is_refused(folder: Path) -> None:
    save_checkpoint(replace(WHOLE, model=make_model(vocabulary_size=270)), folder)
    assert fault(folder) == f"{folder / 'tokenizer.json'}: has {TOKENIZER.get_vocab_size()} pieces, the model's vocabulary 270"


def test_half_precision_weights_become_float32(folder: Path) -> None:
    change_weights(folder, lambda w: w.update({name: tensor.half() for name, tensor in w.items()}))
    assert {p.dtype for p in load_checkpoint(folder).model.parameters()} == {torch.float32}


def test_the_average_is_the_mean_of_every_weight(tmp_path: Path) -> None:
    models = [make_model(vocabulary_size=290) for _ in range(3)]
    for number, model in enumerate(models):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(number)
        save_checkpoint(replace(WHOLE, model=model), tmp_path / str(number))
    load_weights(models[0], average_weights([tmp_path / str(n) for n in range(3)]), tmp_path)
    for mean, once in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.allclose(mean, once)


def test_an_average_needs_every_folder_and_one_shape(tmp_path: Path) -> None:
    save_checkpoint(WHOLE, tmp_path / "a")
    with pytest.raises(CheckpointError, match=r"b/model\.safetensors: cannot be read"):
        average_weights([tmp_path / "a", tmp_path / "b"])
    save_checkpoint(replace(WHOLE, model=make_model(vocabulary_size=290, tie_embeddings=False)), tmp_path / "b")
    with pytest.raises(CheckpointError, match="its weights are not those of"):
        average_weights([tmp_path / "a", tmp_path / "b"])


def test_the_configuration_on_disk_is_the_model_s(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["transformer"] == asdict(MODEL.config)
