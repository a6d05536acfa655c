"""Checkpoints of BERT-base's and ViT-B/16's shape with random weights, for measuring speed.

    python tests/benchmarks/base.py bert TOKENIZER.JSON OUT
    python tests/benchmarks/base.py vit OUT

The tokenizer is any WordPiece one; the model has BERT's 30,522 tokens all the same.
Then `triptych export OUT --out REPOSITORY`.
"""

from pathlib import Path

import click
import numpy as np
import torch
from PIL import Image

from triptych_training.bert import BertConfig, BertForPretraining
from triptych_training.encoder_checkpoint import (
    BertCheckpoint,
    ImagePreprocessing,
    VitCheckpoint,
    save_bert_checkpoint,
    save_vit_checkpoint,
)
from triptych_training.tokenizer import load_tokenizer
from triptych_training.vit import Vit, VitConfig

SAMPLES = 24  # inputs that the export compares
SPREAD = 3.0  # fresh weights are so small that all inputs would get one answer


@click.group()
def main() -> None:
    torch.manual_seed(1)


@main.command()
@click.argument("tokenizer", type=click.Path(path_type=Path, exists=True))
@click.argument("out", type=click.Path(path_type=Path))
def bert(tokenizer: Path, out: Path) -> None:
    learned = load_tokenizer(tokenizer)
    model = BertForPretraining(BertConfig(30_522)).eval()
    _spread(model)
    words = [token for token in learned.get_vocab() if token.isalpha() and token.isascii()]
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(words, length)) for length in rng.integers(8, 60, SAMPLES)]
    save_bert_checkpoint(BertCheckpoint(model, learned, samples=texts), out)


@main.command()
@click.argument("out", type=click.Path(path_type=Path))
def vit(out: Path) -> None:
    model = Vit(VitConfig(classes=1_000)).eval()
    _spread(model)
    rng = np.random.default_rng(1)
    out.mkdir(parents=True)
    samples = []
    for index in range(SAMPLES):
        coarse = rng.integers(0, 256, (8, 8, 3), np.uint8)
        file = out / f"{index}.jpg"
        Image.fromarray(coarse).resize((256, 256), Image.Resampling.BICUBIC).save(file, quality=90)
        samples.append(file.read_bytes())
        file.unlink()
    image = ImagePreprocessing(224, 224)
    save_vit_checkpoint(VitCheckpoint(model, [f"class {i}" for i in range(1_000)], image, samples=samples), out)


@torch.no_grad()
def _spread(model: torch.nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if ".layers." in f".{name}" and parameter.ndim == 2:
            parameter.mul_(SPREAD)


if __name__ == "__main__":
    main()
