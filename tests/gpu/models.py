"""Tiny BERT and ViT checkpoints with random weights whose results depend on the input."""

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from triptych_training.checkpoints.encoder import (
    ImagePreprocessing,
    TextCheckpoint,
    TrainedImageClassifier,
    save_bert_checkpoint,
    save_image_checkpoint,
)
from triptych_training.data.wordpiece import train_wordpiece
from triptych_training.models.bert import BertConfig, BertForPretraining
from triptych_training.models.vit import Vit, VitConfig

from ..fixtures.toy import SOURCES

SPREAD = 3.0  # with fresh weights all inputs would have the same result
CLEAR = 20.0  # for clearly different scores
SIDE = 32  # pixels
CLASSES = 10
MOST_TOKENS = 64
SAMPLES = 40  # exports need 32


def save_tiny_bert(folder: Path) -> None:
    """Write a BERT checkpoint for fill-mask."""
    torch.manual_seed(1)
    tokenizer = train_wordpiece(SOURCES, 200, lowercase=True)
    shape = BertConfig(tokenizer.get_vocab_size(), 32, 2, 64, 2, MOST_TOKENS, dropout=0.0)
    model = BertForPretraining(shape).eval()
    _spread(model)
    with torch.no_grad():
        model.masked_token.norm.weight.mul_(CLEAR)
    save_bert_checkpoint(TextCheckpoint(model, tokenizer, samples=SOURCES[:SAMPLES]), folder)


def save_tiny_vit(folder: Path) -> None:
    """Write a ViT checkpoint for image classification."""
    torch.manual_seed(1)
    model = Vit(VitConfig(CLASSES, SIDE, 8, model_dim=32, heads=2, feedforward_dim=64, layers=2)).eval()
    _spread(model)
    with torch.no_grad():
        model.classifier.weight.mul_(CLEAR)
    names = [f"class {number}" for number in range(CLASSES)]
    samples = [picture(seed) for seed in range(SAMPLES)]
    save_image_checkpoint(TrainedImageClassifier(model, names, ImagePreprocessing(SIDE, SIDE), samples=samples), folder)


def picture(seed: int) -> bytes:
    """Make a JPEG file of smooth colours."""
    rng = np.random.default_rng(seed)
    width, height = (int(size) for size in rng.integers(SIDE, 4 * SIDE, 2))
    coarse = Image.fromarray(rng.integers(0, 256, (4, 4, 3), np.uint8))
    file = io.BytesIO()
    coarse.resize((width, height), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return file.getvalue()


@torch.no_grad()
def _spread(model: torch.nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if ".layers." in f".{name}" and parameter.ndim == 2:
            parameter.mul_(SPREAD)
