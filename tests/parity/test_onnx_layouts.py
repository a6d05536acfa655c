"""Encoders in the layout of Optimum, whose graphs are kept, answer as transformers does."""

import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from triptych_export.exporter import ExportOptions, export
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import read_manifest
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.models.text.tasks import TEXT_CLASSIFICATION_TASK
from triptych_serving.models.text.text_model import TextModel

from ..fixtures.optimum import LABELS, optimum, small_bert, small_vit
from ..fixtures.sentences import SENTENCES
from .test_huggingface_images import as_png, pictures
from .text_checkpoints import save_checkpoint, word_pieces


def bundle_of(folder: Path, name: str) -> Path:
    """Put the model's ONNX file in place of its weights, and export the folder."""
    (folder / "model.safetensors").unlink()
    shutil.copy(optimum(name) / "model.onnx", folder)
    bundle = export(folder, ExportOptions(folder.parent / "models", name=name), lambda _: None)
    assert read_manifest(bundle).parity["fp32"]["samples"] >= 32
    return bundle


@torch.inference_mode()
def test_bert_classifies_as_transformers_does(tmp_path: Path) -> None:
    theirs = small_bert()
    tokenizer = save_checkpoint(theirs, word_pieces(), tmp_path / "bert")
    with closing(TextModel("bert", 1, open_bundle(bundle_of(tmp_path / "bert", "bert")))) as model:
        texts = [" ".join(text.split()[:20]) for text in SENTENCES[:12]]
        for text, found in zip(texts, model.run(TEXT_CLASSIFICATION_TASK, texts, top_k=LABELS), strict=True):
            wanted = theirs(**tokenizer(text, return_tensors="pt")).logits[0].softmax(-1)
            assert {one.index: pytest.approx(one.score, abs=1e-5) for one in found.labels} == dict(enumerate(wanted.tolist()))


@torch.inference_mode()
def test_vit_classifies_as_transformers_does(tmp_path: Path) -> None:
    theirs, processor = small_vit(), transformers.ViTImageProcessorPil(size={"height": 32, "width": 32})
    theirs.save_pretrained(tmp_path / "vit")
    processor.save_pretrained(tmp_path / "vit")
    with closing(ImageModel("vit", 1, open_bundle(bundle_of(tmp_path / "vit", "vit")))) as model:
        answers = model.classify([as_png(picture) for picture in pictures()], top_k=LABELS)
        wanted = theirs(**processor(pictures(), return_tensors="pt")).logits.softmax(-1).numpy()
        for found, row in zip(answers, wanted, strict=True):
            scores = {one.index: one.score for one in found.labels}
            np.testing.assert_allclose([scores[index] for index in range(LABELS)], row, rtol=1e-4, atol=1e-5)
