"""Checkpoint folders of BERT and ViT."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from triptych_training.checkpoints.encoder import (
    ImagePreprocessing,
    Sample,
    TextCheckpoint,
    TrainedImageClassifier,
    load_bert_checkpoint,
    load_image_checkpoint,
    save_bert_checkpoint,
    save_image_checkpoint,
)
from triptych_training.models.bert import (
    BertForEmbedding,
    BertForPretraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)
from triptych_training.models.deberta import DebertaConfig
from triptych_training.models.modernbert import ModernBertConfig
from triptych_training.models.vit import Vit, VitConfig

from ....fixtures.noise import stir
from ..toy_text import SHAPE, TOKENIZER, make_bert

LABELS = ("no", "yes", "Straße")
MODELS: dict[str, Callable[[], BertModel]] = {
    "pretraining": lambda: BertForPretraining(replace(SHAPE, norm="pre")),
    "pretraining without next sentences": lambda: BertForPretraining(SHAPE, next_sentence=False),
    "text-classification": lambda: BertForSequenceClassification(SHAPE, 3),
    "token-classification": lambda: BertForTokenClassification(SHAPE, 3),
    "question-answering": lambda: BertForQuestionAnswering(SHAPE),
    "embedding": lambda: BertForEmbedding(replace(SHAPE, segments=0)),
    "embedding of relative positions": lambda: BertForEmbedding(replace(SHAPE, embedding_dim=24, relative_buckets=8)),
    "text-classification of independent labels": lambda: BertForSequenceClassification(SHAPE, 3, independent=True),
    "pretraining of another encoder": lambda: BertForPretraining(MODERN),
    "embedding of relative distances": lambda: BertForEmbedding(DISENTANGLED),
}
MODERN = ModernBertConfig(SHAPE.vocabulary_size, 32, 2, 40, 3, 64, (1,), 2, pad_id=0, cls_id=2, sep_id=3, mask_id=4)
DISENTANGLED = DebertaConfig(SHAPE.vocabulary_size, 32, 2, 40, 2, 64, 8, 64, 24, mask_id=4)
IMAGE = ImagePreprocessing(8, 8, "shortest-edge", 10, "bicubic", (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
VIT_SHAPE = VitConfig(3, 8, 4, model_dim=16, heads=2, feedforward_dim=24, layers=2, stem="convolution")


def make_vit(stem: str = "convolution") -> Vit:
    model = stir(Vit(replace(VIT_SHAPE, stem=stem)))
    model.train()(torch.randn(4, 3, 8, 8))  # changes the running statistics
    return model


def assert_equal(model: nn.Module, expected: nn.Module) -> None:
    assert not model.training
    assert model.state_dict().keys() == expected.state_dict().keys()
    for name, tensor in expected.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


@pytest.mark.parametrize("name", MODELS)
def test_loading_a_bert_returns_what_was_saved(tmp_path: Path, name: str) -> None:
    model = stir(MODELS[name]())
    labels = LABELS if "classification" in name else ()
    samples: list[Sample] = ["the cat", ("the cat", "eats fish\n")]
    save_bert_checkpoint(TextCheckpoint(model, TOKENIZER, labels, {"epochs": 3}, samples, pairs=True), tmp_path)
    loaded = load_bert_checkpoint(tmp_path)
    assert type(loaded.model) is type(model)
    assert loaded.model.config == model.config
    assert_equal(loaded.model, model)
    assert loaded.head == name.partition(" ")[0]
    assert getattr(loaded.model, "independent", None) == getattr(model, "independent", None)
    assert (loaded.labels, loaded.provenance, list(loaded.samples), loaded.pairs) == (labels, {"epochs": 3}, samples, True)
    assert loaded.tokenizer.encode("the cat", "eats").ids == TOKENIZER.encode("the cat", "eats").ids


def test_options_and_untied_matrices_are_stored(tmp_path: Path) -> None:
    model = BertForEmbedding(SHAPE).eval()
    saved = TextCheckpoint(model, TOKENIZER, pairs=True, singles=True, family="roberta", pooling="cls", normalize=True)
    save_bert_checkpoint(saved, tmp_path)
    loaded = load_bert_checkpoint(tmp_path)
    assert replace(loaded, model=model, tokenizer=TOKENIZER) == saved
    model = stir(BertForPretraining(replace(SHAPE, tied=False)))
    save_bert_checkpoint(TextCheckpoint(model, TOKENIZER), tmp_path)
    loaded = load_bert_checkpoint(tmp_path).model
    assert isinstance(loaded, BertForPretraining)
    assert torch.equal(loaded.masked_token.projection.weight, model.masked_token.projection.weight)
    assert not torch.equal(loaded.masked_token.projection.weight, loaded.bert.embedding.tokens.weight)


def test_a_tied_matrix_is_stored_once_and_samples_are_optional(tmp_path: Path) -> None:
    save_bert_checkpoint(TextCheckpoint(make_bert(), TOKENIZER), tmp_path / "bert")
    names = load_file(str(tmp_path / "bert/model.safetensors")).keys()
    assert [n for n in names if "tokens" in n or "projection.weight" in n] == ["bert.embedding.tokens.weight"]
    loaded = load_bert_checkpoint(tmp_path / "bert")
    assert isinstance(loaded.model, BertForPretraining)
    assert loaded.model.masked_token.projection.weight is loaded.model.bert.embedding.tokens.weight
    assert list(loaded.samples) == []
    save_image_checkpoint(TrainedImageClassifier(make_vit(), LABELS, IMAGE), tmp_path / "none")
    assert load_image_checkpoint(tmp_path / "none").samples == ()


@pytest.mark.parametrize("stem", ["patch", "convolution", "deep"])
def test_loading_a_vit_returns_what_was_saved(tmp_path: Path, stem: str) -> None:
    model = make_vit(stem)
    save_image_checkpoint(TrainedImageClassifier(model, LABELS, IMAGE, {"epochs": 3}, (b"one", b"two")), tmp_path)
    loaded = load_image_checkpoint(tmp_path)
    assert loaded.model.config == model.config
    assert_equal(loaded.model, model)
    assert loaded == TrainedImageClassifier(loaded.model, LABELS, IMAGE, {"epochs": 3}, (b"one", b"two"))
