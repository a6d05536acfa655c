"""Tiny translation data, recipe and model."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from triptych_training.data.tokenizer import train_tokenizer
from triptych_training.loop.recipe import TranslationRecipe
from triptych_training.models.transformer import Transformer, TransformerConfig

SHAPE = TransformerConfig(
    vocabulary_size=50,
    model_dim=16,
    heads=2,
    feedforward_dim=24,
    encoder_layers=2,
    decoder_layers=2,
    max_positions=32,
    dropout=0.1,
)
Finished = tuple[TranslationRecipe, Path]  # a training and its run folder
TRAINED = replace(SHAPE, encoder_layers=1, decoder_layers=1, max_positions=16)  # of whole trainings
WORDS = ("one", "two", "three", "four", "five", "six", "seven")
PAIRS = [(f"{a} {b}.", f"{b} {a}!") for a in WORDS for b in WORDS]
TOKENIZER = train_tokenizer([text for pair in PAIRS for text in pair], 290)


def make_model(**changes: Any) -> Transformer:
    """Make a model in evaluation mode."""
    torch.manual_seed(7)
    return vary(Transformer(replace(SHAPE, **changes)))


@torch.no_grad()
def vary(model: Transformer) -> Transformer:
    """Make random weights large enough to give varied results."""
    for name, parameter in model.named_parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
        if ".layers." in name and parameter.ndim == 2:
            parameter.mul_(3)
    return model.eval()


def make_ids(*lengths: int, size: int = SHAPE.vocabulary_size) -> list[list[int]]:
    """Make random sources of these lengths, EOS last."""
    torch.manual_seed(11)
    return [[*torch.randint(4, size, (length - 1,)).tolist(), SHAPE.eos_id] for length in lengths]


def write_pairs(path: Path, pairs: Sequence[tuple[str, str]] = PAIRS) -> str:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return str(path)


def make_recipe(folder: Path, **changes: Any) -> TranslationRecipe:
    """Make a recipe for two epochs of 6 steps over `PAIRS`."""
    recipe = TranslationRecipe(
        train=(write_pairs(folder / "train.tsv"),),
        valid=(write_pairs(folder / "valid.tsv", PAIRS[::8]),),
        source_language="en",
        target_language="xx",
        vocabulary_size=290,
        epochs=2,
        batch_tokens=36,
        learning_rate=1e-2,
        warmup_steps=4,
        average=2,
        save_steps=4,
        precision="fp32",
        devices="1",
    )
    return replace(recipe, **changes)
