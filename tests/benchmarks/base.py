"""Checkpoints of BERT-base's, ViT-B/16's and the base Transformer's shape with random weights, for measuring speed.

    python tests/benchmarks/base.py bert TOKENIZER.JSON OUT
    python tests/benchmarks/base.py vit OUT
    python tests/benchmarks/base.py translation TOKENIZER.JSON OUT [--positions 64] [--shape opus-mt]

--bundle REPOSITORY/NAME/1 also exports the model, without the checks that take `triptych export` most of its time, in the
precisions that --precisions names (BERT and ViT: in fp16). With --tiny the models are as small as can be, to rehearse.

The tokenizer is any WordPiece one, or for translation any that `triptych train` wrote; the models have BERT's 30,522 tokens and
16,000 tokens (or as many as their --shape) all the same. A translation never ends by itself: measure with `offline.py --length`
and `server.py --length`.
Then `triptych export OUT --out REPOSITORY`.
"""

from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from PIL import Image

from triptych_export.families.image import ImageFamily
from triptych_export.families.text import TextFamily
from triptych_export.families.translation import write_translation
from triptych_export.parity.translation import ParitySample
from triptych_export.translation_source import TranslationSource
from triptych_training.checkpoints.encoder import (
    ImagePreprocessing,
    TextCheckpoint,
    TrainedImageClassifier,
    save_bert_checkpoint,
    save_image_checkpoint,
)
from triptych_training.checkpoints.translation import Checkpoint, save_checkpoint
from triptych_training.data.tokenizer import load_tokenizer
from triptych_training.decoding.greedy import greedy
from triptych_training.models.bert import BertConfig, BertForPretraining
from triptych_training.models.blocks import FeedForward
from triptych_training.models.transformer import Transformer, TransformerConfig
from triptych_training.models.vit import Vit, VitConfig

SAMPLES = 40  # inputs that the export compares: a few more than the 32 that it needs
CALIBRATION = 24  # sentences for int8
PRECISIONS = ("fp16",)  # of the bundles of BERT and ViT
SPREAD = 3.0  # fresh weights are so small that all inputs would get one answer
SENTENCES = 200  # as many as the export asks for
TRANSLATION_SPREAD = 16.0  # with less, decoding soon says one token for ever


TINY: dict[str, Any] = {"model_dim": 32, "heads": 2, "feedforward_dim": 64}
LARGE: dict[str, Any] = {"model_dim": 1024, "heads": 16, "feedforward_dim": 4096}
SHAPES: dict[str, dict[str, Any]] = {  # of translation models: the embedded one's; OPUS-MT's and NLLB-200-distilled-600M's
    "base": {"vocabulary_size": 16_000},
    "en-de": {"vocabulary_size": 12_000, "model_dim": 256, "heads": 4, "feedforward_dim": 1024, "decoder_layers": 2},
    "opus-mt": {"vocabulary_size": 58_101},
    "nllb-600m": {"vocabulary_size": 256_206, **LARGE, "encoder_layers": 12, "decoder_layers": 12},
}
small = click.option("--tiny", is_flag=True, help="As small as can be.")
bundled = click.option("--bundle", type=click.Path(path_type=Path), default=None, help="Folder of a bundle to write as well.")


@click.group()
def main() -> None:
    torch.manual_seed(1)


@main.command()
@click.argument("tokenizer", type=click.Path(path_type=Path, exists=True))
@click.argument("out", type=click.Path(path_type=Path))
@bundled
@small
def bert(tokenizer: Path, out: Path, bundle: Path | None, tiny: bool) -> None:
    learned = load_tokenizer(tokenizer)
    shape = BertConfig(learned.get_vocab_size(), layers=2, **TINY) if tiny else BertConfig(30_522)
    model = BertForPretraining(shape).eval()
    _spread(model)
    words = [token for token in learned.get_vocab() if token.isalpha() and token.isascii()]
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(words, length)) for length in rng.integers(8, 60, SAMPLES)]
    checkpoint = TextCheckpoint(model, learned, samples=texts)
    save_bert_checkpoint(checkpoint, out)
    _write(TextFamily(checkpoint, [], PRECISIONS), bundle)


@main.command()
@click.argument("out", type=click.Path(path_type=Path))
@bundled
@small
def vit(out: Path, bundle: Path | None, tiny: bool) -> None:
    shape = VitConfig(10, 32, 8, layers=2, **TINY) if tiny else VitConfig(1_000)
    model = Vit(shape).eval()
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
    image = ImagePreprocessing(*shape.image)
    checkpoint = TrainedImageClassifier(model, [f"class {i}" for i in range(shape.classes)], image, samples=samples)
    save_image_checkpoint(checkpoint, out)
    _write(ImageFamily(checkpoint, [], PRECISIONS), bundle)


@main.command()
@click.argument("tokenizer", type=click.Path(path_type=Path, exists=True))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--positions", default=64, show_default=True, help="Longest source and target, in tokens: an export compares all."
)
@bundled
@click.option("--precisions", default="fp32,int8,int8-caches", show_default=True, help="Of the bundle.")
@click.option("--shape", "name", type=click.Choice([*SHAPES]), default="base", show_default=True)
@small
def translation(
    tokenizer: Path, out: Path, positions: int, bundle: Path | None, precisions: str, name: str, tiny: bool
) -> None:
    learned = load_tokenizer(tokenizer)
    smaller = {"vocabulary_size": learned.get_vocab_size(), **TINY, "encoder_layers": 2, "decoder_layers": 2}
    sizes = smaller if tiny else SHAPES[name]
    shape = TransformerConfig(norm="pre", dropout=0.0, max_positions=positions, **sizes)
    model = Transformer(shape).eval()
    _vary(model)
    _never_end(model)
    words = [token[1:] for token in sorted(learned.get_vocab()) if token[1:].isalpha() and token[1:].isascii()]
    rng = np.random.default_rng(1)
    sentences = [" ".join(rng.choice(words, length)) for length in rng.integers(4, 20, SENTENCES)]
    checkpoint = Checkpoint(model, learned, "en", "de", samples=[(text, text) for text in sentences])
    save_checkpoint(checkpoint, out)
    if bundle is not None:
        bundle.parent.mkdir(parents=True, exist_ok=True)
        read = [encoding.ids for encoding in learned.encode_batch(sentences[:CALIBRATION])]
        sample = ParitySample(read, greedy(model, read, positions // 2), positions)
        write_translation(TranslationSource.of(checkpoint), bundle, click.echo, sample, precisions=tuple(precisions.split(",")))


def _write(family: TextFamily | ImageFamily, bundle: Path | None) -> None:
    if bundle is not None:
        bundle.parent.mkdir(parents=True, exist_ok=True)
        family.write(bundle, click.echo)


@torch.no_grad()
def _vary(model: Transformer) -> None:
    """Let what was said last weigh most in what comes next. A constant part of every layer would drown it."""
    for module in model.modules():
        if isinstance(module, FeedForward):
            weight = module.contract.weight
            weight.sub_(weight.mean(1, keepdim=True)).mul_(TRANSLATION_SPREAD)


@torch.no_grad()
def _never_end(model: Transformer) -> None:
    """The last dimension of a state is always 1, and in the shared matrix it is the end's alone: its logit is always -1."""
    matrix, norm, end = model.projection.weight, model.decoder.norm, model.config.eos_id
    assert isinstance(norm, torch.nn.LayerNorm)
    matrix[:, -1] = 0
    matrix[end] = 0
    matrix[end, -1] = -1
    norm.weight[-1] = 0
    norm.bias[-1] = 1


@torch.no_grad()
def _spread(model: torch.nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if ".layers." in f".{name}" and parameter.ndim == 2:
            parameter.mul_(SPREAD)


if __name__ == "__main__":
    main()
