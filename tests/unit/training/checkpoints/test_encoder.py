"""Checkpoint folders of BERT and ViT: written, read, found faulty."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from triptych_training.checkpoints.config import read_architecture
from triptych_training.checkpoints.encoder import (
    BERT,
    VIT,
    BertCheckpoint,
    ImagePreprocessing,
    Sample,
    VitCheckpoint,
    load_bert_checkpoint,
    load_vit_checkpoint,
    save_bert_checkpoint,
    save_vit_checkpoint,
)
from triptych_training.errors import CheckpointError
from triptych_training.models.bert import (
    BertForEmbedding,
    BertForPretraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)
from triptych_training.models.modernbert import ModernBertConfig
from triptych_training.models.vit import Vit, VitConfig

from ..toy_text import SHAPE, TOKENIZER, make_bert, stir

LABELS = ("no", "yes", "Straße")
MODELS: dict[str, Callable[[], BertModel]] = {
    "pretraining": lambda: BertForPretraining(replace(SHAPE, norm="pre")),
    "pretraining without next sentences": lambda: BertForPretraining(SHAPE, next_sentence=False),
    "text-classification": lambda: BertForSequenceClassification(SHAPE, 3),
    "token-classification": lambda: BertForTokenClassification(SHAPE, 3),
    "question-answering": lambda: BertForQuestionAnswering(SHAPE),
    "embedding": lambda: BertForEmbedding(replace(SHAPE, segments=0)),
    "text-classification of independent labels": lambda: BertForSequenceClassification(SHAPE, 3, independent=True),
    "pretraining of another encoder": lambda: BertForPretraining(MODERN),
}
MODERN = ModernBertConfig(SHAPE.vocabulary_size, 32, 2, 40, 3, 64, (1,), 2, pad_id=0, cls_id=2, sep_id=3, mask_id=4)
IMAGE = ImagePreprocessing(8, 8, "shortest-edge", 10, "bicubic", (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
VIT_SHAPE = VitConfig(3, 8, 4, model_dim=16, heads=2, feedforward_dim=24, layers=2, stem="convolution")


def make_vit(stem: str = "convolution") -> Vit:
    model = Vit(replace(VIT_SHAPE, stem=stem))
    stir(model)
    model.train()(torch.randn(4, 3, 8, 8))  # running statistics of their own
    return model


def assert_equal(model: nn.Module, expected: nn.Module) -> None:
    assert not model.training
    assert model.state_dict().keys() == expected.state_dict().keys()
    for name, tensor in expected.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    save_bert_checkpoint(BertCheckpoint(make_bert(), TOKENIZER, samples=("the cat", ("the cat", "eats"))), tmp_path / "bert")
    return tmp_path / "bert"


@pytest.fixture
def vit(tmp_path: Path) -> Path:
    save_vit_checkpoint(VitCheckpoint(make_vit(), LABELS, IMAGE, {"epochs": 3}, (b"one", b"two")), tmp_path / "vit")
    return tmp_path / "vit"


def fault(load: Callable[[Path], object], folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load(folder)
    return str(caught.value)


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    edit(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def change_weights(folder: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(str(folder / "model.safetensors"))
    edit(weights)
    save_file(weights, str(folder / "model.safetensors"))


@pytest.mark.parametrize("name", MODELS)
def test_a_bert_of_every_head_comes_back_whole(tmp_path: Path, name: str) -> None:
    model = MODELS[name]()
    stir(model)
    labels = LABELS if "classification" in name else ()
    samples: list[Sample] = ["the cat", ("the cat", "eats fish\n")]
    save_bert_checkpoint(BertCheckpoint(model, TOKENIZER, labels, {"epochs": 3}, samples, pairs=True), tmp_path)
    loaded = load_bert_checkpoint(tmp_path)
    assert type(loaded.model) is type(model)
    assert loaded.model.config == model.config
    assert_equal(loaded.model, model)
    assert loaded.head == name.partition(" ")[0]
    assert getattr(loaded.model, "independent", None) == getattr(model, "independent", None)
    assert (loaded.labels, loaded.provenance, list(loaded.samples), loaded.pairs) == (labels, {"epochs": 3}, samples, True)
    assert loaded.tokenizer.encode("the cat", "eats").ids == TOKENIZER.encode("the cat", "eats").ids
    assert read_architecture(tmp_path) == BERT


def test_what_an_encoder_is_meant_for_comes_back(tmp_path: Path) -> None:
    model = BertForEmbedding(SHAPE).eval()
    saved = BertCheckpoint(model, TOKENIZER, pairs=True, singles=True, family="roberta", pooling="cls", normalize=True)
    save_bert_checkpoint(saved, tmp_path)
    loaded = load_bert_checkpoint(tmp_path)
    assert replace(loaded, model=model, tokenizer=TOKENIZER) == saved


def test_an_untied_matrix_is_stored_for_itself(tmp_path: Path) -> None:
    model = BertForPretraining(replace(SHAPE, tied=False))
    stir(model)
    save_bert_checkpoint(BertCheckpoint(model, TOKENIZER), tmp_path)
    loaded = load_bert_checkpoint(tmp_path).model
    assert isinstance(loaded, BertForPretraining)
    assert torch.equal(loaded.masked_token.projection.weight, model.masked_token.projection.weight)
    assert not torch.equal(loaded.masked_token.projection.weight, loaded.bert.embedding.tokens.weight)


def test_a_tied_matrix_is_stored_once_and_comes_back_tied(bert: Path) -> None:
    names = load_file(str(bert / "model.safetensors")).keys()
    assert [n for n in names if "tokens" in n or "projection.weight" in n] == ["bert.embedding.tokens.weight"]
    model = load_bert_checkpoint(bert).model
    assert isinstance(model, BertForPretraining)
    assert model.masked_token.projection.weight is model.bert.embedding.tokens.weight


@pytest.mark.parametrize("stem", ["patch", "convolution"])
def test_a_vit_comes_back_whole(tmp_path: Path, stem: str) -> None:
    model = make_vit(stem)
    save_vit_checkpoint(VitCheckpoint(model, LABELS, IMAGE, {"epochs": 3}, (b"one", b"two")), tmp_path)
    loaded = load_vit_checkpoint(tmp_path)
    assert loaded.model.config == model.config
    assert_equal(loaded.model, model)
    assert loaded == VitCheckpoint(loaded.model, LABELS, IMAGE, {"epochs": 3}, (b"one", b"two"))
    assert read_architecture(tmp_path) == VIT


def test_the_folders_hold_the_documented_files_and_nothing_else(bert: Path, vit: Path) -> None:
    assert {path.name for path in bert.iterdir()} == {"config.json", "model.safetensors", "tokenizer.json", "samples.json"}
    assert {path.name for path in vit.iterdir()} == {"config.json", "model.safetensors", "samples"}
    assert {path.name for path in (vit / "samples").iterdir()} == {"0000.jpg", "0001.jpg"}


def test_samples_may_be_missing(bert: Path, tmp_path: Path) -> None:
    (bert / "samples.json").unlink()
    assert list(load_bert_checkpoint(bert).samples) == []
    save_vit_checkpoint(VitCheckpoint(make_vit(), LABELS, IMAGE), tmp_path / "none")
    assert load_vit_checkpoint(tmp_path / "none").samples == ()


def test_missing_files_are_all_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    missing = f"{tmp_path}: not a checkpoint folder, missing model.safetensors"
    assert fault(load_vit_checkpoint, tmp_path) == missing
    assert fault(load_bert_checkpoint, tmp_path) == f"{missing}, tokenizer.json"
    with pytest.raises(CheckpointError, match=r"missing config\.json"):
        read_architecture(tmp_path / "none")


def test_all_faults_of_a_bert_are_listed_at_once(bert: Path) -> None:
    change(bert, lambda c: c["bert"].update(heads=3))
    (bert / "model.safetensors").write_bytes(b"\0" * 100)
    (bert / "tokenizer.json").write_text("{}")
    (bert / "samples.json").write_text('["one", ["two"]]')
    message = fault(load_bert_checkpoint, bert)
    assert "config.json: bert: heads: 3 does not divide model_dim 32" in message
    assert "model.safetensors: damaged" in message
    assert "tokenizer.json: not a tokenizer" in message
    assert "samples.json: damaged" in message


def test_all_faults_of_a_vit_are_listed_at_once(vit: Path) -> None:
    change(vit, lambda c: (c["vit"].update(heads=3), c["image"].update(colour=1)))
    (vit / "model.safetensors").write_bytes(b"\0" * 100)
    message = fault(load_vit_checkpoint, vit)
    assert "config.json: vit: heads: 3 does not divide model_dim 16" in message
    assert "config.json: image: " in message
    assert "model.safetensors: damaged" in message


def test_all_weights_that_do_not_fit_are_listed_at_once(bert: Path, vit: Path) -> None:
    def edit(weights: dict[str, torch.Tensor]) -> None:
        name = next(name for name in weights if name.endswith("layers.1.feedforward.expand.weight"))
        weights["extra"] = torch.zeros(1)
        weights[name] = torch.zeros(3, 16)
        del weights[name.replace("feedforward.expand.weight", "attention.output.bias")]

    for folder, load in ((bert, load_bert_checkpoint), (vit, load_vit_checkpoint)):
        change_weights(folder, edit)
        message = fault(load, folder)
        assert "missing " in message
        assert "layers.1.attention.output.bias" in message
        assert "unexpected extra" in message
        assert "layers.1.feedforward.expand.weight has shape [3, 16], expected [" in message


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: c.update(format=2), "format 2; supported: 'triptych-bert' format 1"),
        (lambda c: c.update(architecture="triptych-vit"), "architecture 'triptych-vit' format 1; supported"),
        (lambda c: (c.pop("bert"), c.update(pairs=1)), "wrong type: bert, pairs"),
        (lambda c: c.update(encoder="bart"), "encoder: 'bart' is unknown; supported: bert, modernbert"),
        (lambda c: c.update(head="summary"), "head: 'summary' is unknown; supported: pretraining, text-classification"),
        (lambda c: c["bert"].update(colour="red"), "unexpected keyword argument 'colour'"),
        (lambda c: c["bert"].update(model_dim="16"), "bert: "),
        (lambda c: c["bert"].update(mask_id=999), "mask_id: 999 is outside the vocabulary"),
    ],
    ids=["format", "architecture", "members", "encoder", "head", "unknown field", "text for a number", "token id"],
)
def test_a_wrong_configuration_is_named(bert: Path, edit: Callable[[dict[str, Any]], object], message: str) -> None:
    change(bert, edit)
    assert fault(load_bert_checkpoint, bert).startswith(f"{bert / 'config.json'}: ")
    assert message in fault(load_bert_checkpoint, bert)


def test_a_head_with_other_labels_than_classes_is_refused(tmp_path: Path, vit: Path) -> None:
    change(vit, lambda c: c["labels"].pop())
    assert fault(load_vit_checkpoint, vit) == f"{vit / 'config.json'}: labels has 2 names, the model 3 classes"
    save_bert_checkpoint(BertCheckpoint(BertForTokenClassification(SHAPE, 3), TOKENIZER, LABELS[:2]), tmp_path)
    assert "classifier.bias has shape [3], expected [2]" in fault(load_bert_checkpoint, tmp_path)


def test_a_tokenizer_with_more_pieces_than_the_model_has_rows_is_refused(tmp_path: Path) -> None:
    save_bert_checkpoint(BertCheckpoint(make_bert(vocabulary_size=50), TOKENIZER), tmp_path)
    size = TOKENIZER.get_vocab_size()
    assert fault(load_bert_checkpoint, tmp_path) == f"{tmp_path}/tokenizer.json: has {size} pieces, the model's vocabulary 50"


@pytest.mark.parametrize("content", ["", "{", "3", '[["one"]]', "[1]"])
def test_damaged_samples_are_named(bert: Path, content: str) -> None:
    (bert / "samples.json").write_text(content)
    assert fault(load_bert_checkpoint, bert).startswith(f"{bert / 'samples.json'}: damaged")
