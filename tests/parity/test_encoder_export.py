"""The whole way once for every head: a checkpoint folder traced, quantized, compared with PyTorch, and read by serving."""

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from triptych_export.errors import ParityError, SourceError
from triptych_export.exporter import ExportOptions, export
from triptych_export.families import text as text_family
from triptych_export.parity.comparison import Outputs
from triptych_serving.bundle.bundle import Bundle, open_bundle, read_labels
from triptych_serving.bundle.manifest import ImageManifest, TextManifest
from triptych_training.checkpoints.encoder import (
    ImagePreprocessing,
    TextCheckpoint,
    TrainedImageClassifier,
    save_bert_checkpoint,
    save_image_checkpoint,
)
from triptych_training.data.wordpiece import train_wordpiece
from triptych_training.models.bert import (
    BertConfig,
    BertForPretraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)
from triptych_training.models.vit import Vit, VitConfig

from ..fixtures.noise import stir

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "seven", "wizards", "play", "chess"]
TEXTS = [" ".join(WORDS[i % 7 : 3 + i % 14]) for i in range(30)]
PAIRS = list(zip(TEXTS[::2], TEXTS[1::2], strict=True))
TOKENIZER = train_wordpiece(TEXTS * 2, 80, lowercase=True)
SHAPE = BertConfig(
    TOKENIZER.get_vocab_size(), model_dim=32, heads=2, feedforward_dim=48, layers=1, max_positions=20, norm_epsilon=1e-6
)
METRICS = {"accuracy": 0.5}
HEADS: dict[str, tuple[Callable[[], BertModel], tuple[str, ...]]] = {
    "fill-mask": (lambda: BertForPretraining(SHAPE), ()),
    "text-classification": (lambda: BertForSequenceClassification(SHAPE, 2), ("no", "yes")),
    "token-classification": (lambda: BertForTokenClassification(SHAPE, 3), ("O", "B-PER", "I-PER")),
    "question-answering": (lambda: BertForQuestionAnswering(SHAPE), ()),
}


def save_text(folder: Path, task: str) -> Path:
    make, labels = HEADS[task]
    model = stir(make(), 0.1)
    provenance = {"metrics": METRICS, "recipe": {"train": ["/data/a.txt"], "tokenizer": "/data/tokenizer.json"}}
    save_bert_checkpoint(TextCheckpoint(model, TOKENIZER, labels, provenance, [*TEXTS, *PAIRS], pairs=True), folder)
    return folder


QUICK = ("text-classification",)  # test_text_graphs compares others in the quick tier


@pytest.fixture(
    scope="module",
    params=[pytest.param(task, marks=[] if task in QUICK else [pytest.mark.full]) for task in HEADS],
)
def text_bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    work = tmp_path_factory.mktemp("text")
    folder = save_text(work / "checkpoint", request.param)
    return open_bundle(export(folder, ExportOptions(work / "models", notes="Random | numbers."), lambda line: None))


def test_serving_reads_what_a_text_model_is(text_bundle: Bundle) -> None:
    manifest = text_bundle.manifest_of(TextManifest)
    assert text_bundle.folder.parts[-2:] == (manifest.task, "1")
    assert manifest.family == "triptych-bert"
    assert (manifest.tokens.pad, manifest.tokens.cls, manifest.tokens.sep, manifest.tokens.mask) == (0, 2, 3, 4)
    assert (manifest.limits.max_tokens, manifest.hidden_size) == (20, 32)
    assert manifest.labels == HEADS[manifest.task][1]
    assert manifest.next_sentence == (manifest.task == "fill-mask")
    assert manifest.pairs == (manifest.task == "text-classification")
    assert manifest.aggregation == ("first" if manifest.task == "token-classification" else "simple")
    assert list(manifest.precisions) == ["int8", "fp32"]
    assert [graph.saturation_free for graph in manifest.precisions.values()] == [True, False]


def test_the_reports_say_what_was_compared(text_bundle: Bundle) -> None:
    parity = text_bundle.manifest.parity
    assert parity["fp32"]["samples"] == 45
    assert parity["fp32"]["batches"] == [1, 3, 16]
    assert parity["fp32"]["best_choices_equal"] is True
    assert parity["int8"]["decisions"] == parity["fp32"]["decisions"] >= 45
    assert text_bundle.manifest.metrics == METRICS


@pytest.fixture
def untraced(text_bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The bundle's checkpoint, whose graphs are copied from the bundle instead of traced."""
    monkeypatch.setattr(text_family, "write_text", lambda _, folder, *more: shutil.copytree(text_bundle.folder, folder))
    return text_bundle.folder.parents[2] / "checkpoint"


def test_other_answers_than_pytorch_s_write_nothing(untraced: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true = text_family.answer_in_torch

    def spoilt(model: BertModel, row: Any) -> Outputs:
        return {name: values + np.float32(0.01) for name, values in true(model, row).items()}

    monkeypatch.setattr(text_family, "answer_in_torch", spoilt)
    with pytest.raises(ParityError, match=r"differs from PyTorch by 0\.01"):
        export(untraced, ExportOptions(tmp_path / "models"), lambda line: None)
    assert not (tmp_path / "models").exists()


def test_a_single_text_is_too_little_for_the_parity_check(untraced: Path, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("\t".join(PAIRS[0]) + "\n", encoding="utf-8")
    options = ExportOptions(tmp_path / "models", precisions=("fp32",), valid=[str(tmp_path / "one.txt")])
    with pytest.raises(ParityError, match="fp32: samples: 1, at least 32 required; different outputs: 1, at least 16 required"):
        export(untraced, options, lambda line: None)
    assert not (tmp_path / "models").exists()


def test_a_checkpoint_without_texts_asks_for_some(tmp_path: Path) -> None:
    save_bert_checkpoint(TextCheckpoint(BertForQuestionAnswering(SHAPE), TOKENIZER), tmp_path / "checkpoint")
    with pytest.raises(SourceError, match="holds no texts for the parity check; name a file of texts with --valid"):
        export(tmp_path / "checkpoint", ExportOptions(tmp_path / "models"), lambda line: None)


def jpeg(index: int) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(index).integers(0, 256, (4, 5, 3), np.uint8)
    Image.fromarray(pixels).resize((50 + index, 40)).save(buffer, "JPEG")
    return buffer.getvalue()


def save_vit(folder: Path) -> Path:
    model = stir(Vit(VitConfig(3, 32, 8, model_dim=32, heads=2, feedforward_dim=48, layers=1)), 0.1)
    image = ImagePreprocessing(32, 32, "shortest-edge", 36, "bicubic", (0.5, 0.4, 0.3), (0.2, 0.3, 0.25))
    save_image_checkpoint(
        TrainedImageClassifier(model, ("ant", "big  bee", "cow"), image, {}, [jpeg(i) for i in range(40)]), folder
    )
    return folder


def test_serving_reads_what_an_image_model_is(tmp_path: Path) -> None:
    bundle = open_bundle(export(save_vit(tmp_path / "checkpoint"), ExportOptions(tmp_path / "models"), lambda line: None))
    manifest = bundle.manifest_of(ImageManifest)
    assert bundle.folder == tmp_path / "models" / "image-classification" / "1"
    assert (manifest.family, manifest.label_count) == ("triptych-vit", 3)
    assert read_labels(bundle.path("labels.txt")) == ("ant", "big bee", "cow")
    assert (manifest.image.height, manifest.image.resize_size, manifest.image.interpolation) == (32, 36, "bicubic")
    assert (manifest.mean, manifest.std) == ((0.5, 0.4, 0.3), (0.2, 0.3, 0.25))
    assert manifest.parity["fp32"]["samples"] == manifest.parity["int8"]["decisions"] == 40
