"""The translation task: sentence pairs in, an encoder-decoder out."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from tokenizers import Tokenizer
from torch import Tensor

from triptych_training.batches import Example, collate, plan_batches
from triptych_training.checkpoint import Checkpoint, save_checkpoint
from triptych_training.corpus import Pair, read_pairs
from triptych_training.errors import RecipeError
from triptych_training.fabric import make_fabric
from triptych_training.loss import SequenceLoss
from triptych_training.recipe import TranslationRecipe
from triptych_training.runfolder import RunFolder
from triptych_training.tokenizer import load_tokenizer, save_tokenizer, train_tokenizer
from triptych_training.trainer import Trainer
from triptych_training.transformer import Transformer, TransformerConfig
from triptych_training.validation import validate

SAMPLE_PAIRS = 500  # validation pairs that the final checkpoint carries


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs and their ids."""

    train: Sequence[Example]
    valid: Sequence[Example]
    valid_pairs: Sequence[Pair]


def train_translation(recipe: TranslationRecipe, shape: TransformerConfig, out: Path, resume: bool = False) -> Path:
    """Train a translation model into the run folder `out`; returns the final checkpoint folder.

    Args:
        recipe: what to do.
        shape: the model; its `vocabulary_size` is replaced by the trained tokenizer's.
        out: the run folder (see runfolder.py).
        resume: go on from the folder's last saved state.

    Raises:
        TrainingError: data, options or checkpoints cannot be used.
    """
    fabric = make_fabric(recipe)
    folder = RunFolder(out, recipe, "transformer", shape, resume)
    tokenizer, corpus = _prepare(fabric, recipe, shape, folder)
    shape = replace(shape, vocabulary_size=tokenizer.get_vocab_size())
    return Trainer(fabric, recipe, folder, TranslationTask(recipe, shape, tokenizer, corpus)).run()


class TranslationTask:
    """Teacher forcing on sentence pairs; a unit is a target token."""

    unit = "tokens"
    headline = "bleu"

    def __init__(self, recipe: TranslationRecipe, shape: TransformerConfig, tokenizer: Tokenizer, corpus: Corpus) -> None:
        self.recipe, self.tokenizer, self.corpus = recipe, tokenizer, corpus
        self.model = Transformer(shape)
        self.loss = SequenceLoss(self.model, recipe.label_smoothing)

    def describe(self) -> str:
        return f"{len(self.corpus.train):,} pairs"

    def plan(self, epoch: int) -> list[list[int]]:
        return plan_batches(self.corpus.train, self.recipe.batch_tokens, self.recipe.seed, epoch)

    def weight(self, indices: Sequence[int]) -> int:
        return sum(len(self.corpus.train[i].target) for i in indices)

    def batch(self, indices: Sequence[int], seed: int) -> tuple[Tensor, ...]:
        config = self.model.config
        batch = collate([self.corpus.train[i] for i in indices], config.pad_id, config.bos_id)
        return batch.source, batch.inputs, batch.labels

    def validate(self) -> Mapping[str, float]:
        corpus = self.corpus
        return asdict(validate(self.model, self.tokenizer, corpus.valid_pairs, corpus.valid, self.recipe.batch_tokens))

    def save(self, folder: Path, provenance: Mapping[str, Any], final: bool) -> None:
        languages = self.recipe.source_language, self.recipe.target_language
        samples = self.corpus.valid_pairs[:SAMPLE_PAIRS] if final else ()
        provenance = {**provenance, "training_pairs": len(self.corpus.train)}
        save_checkpoint(Checkpoint(self.model, self.tokenizer, *languages, provenance, samples), folder)


def _prepare(
    fabric: Fabric, recipe: TranslationRecipe, shape: TransformerConfig, folder: RunFolder
) -> tuple[Tokenizer, Corpus]:
    pairs, valid_pairs = read_pairs(recipe.train), read_pairs(recipe.valid)
    if fabric.is_global_zero:
        folder.begin()
        if not folder.tokenizer.exists():
            learned = train_tokenizer((text for pair in pairs for text in pair), recipe.vocabulary_size)
            save_tokenizer(learned, folder.tokenizer)
    fabric.barrier()
    tokenizer = load_tokenizer(folder.tokenizer)
    limit = min(recipe.max_length, shape.max_positions, recipe.batch_tokens)
    train = [example for example in encode_pairs(tokenizer, pairs) if example.size() <= limit]
    if not train:
        raise RecipeError(f"max_length: no training pair has at most {limit} tokens")
    known = zip(valid_pairs, encode_pairs(tokenizer, valid_pairs), strict=True)
    valid = [(pair, example) for pair, example in known if example.size() <= shape.max_positions]
    if not valid:
        raise RecipeError(f"max_positions: no validation pair has at most {shape.max_positions} tokens")
    if fabric.is_global_zero and not folder.metrics.exists():
        folder.note("pairs_left_out", len(pairs) - len(train), limit)
        folder.note("valid_pairs_left_out", len(valid_pairs) - len(valid), shape.max_positions)
    return tokenizer, Corpus(train, [example for _, example in valid], [pair for pair, _ in valid])


def encode_pairs(tokenizer: Tokenizer, pairs: Sequence[Pair]) -> list[Example]:
    """Ids of both sides, EOS last."""
    sources = tokenizer.encode_batch([source for source, _ in pairs])
    targets = tokenizer.encode_batch([target for _, target in pairs])
    return [Example(source.ids, target.ids) for source, target in zip(sources, targets, strict=True)]
