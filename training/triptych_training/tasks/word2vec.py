"""Training of Word2Vec: CBOW or skip-gram over sentences (Mikolov et al. 2013)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from triptych_training.checkpoints.encoder import save_word_vectors
from triptych_training.data.batches import Indices
from triptych_training.data.documents import Documents, encode_documents, read_documents, read_texts
from triptych_training.data.words import BLOCK, NegativeSampler, WordBlocks, keep_shares, train_words
from triptych_training.errors import CorpusError
from triptych_training.loop.fabric import make_fabric
from triptych_training.loop.recipe import WordRecipe
from triptych_training.loop.run_folder import RunFolder
from triptych_training.loop.trainer import Trainer
from triptych_training.models.word2vec import PAD, Word2Vec, Word2VecConfig

SAMPLE_WEIGHT = 25  # a batch's words share its negative samples: so many fewer are drawn; with 80 a training diverges
BATCH_WORDS = 1_024
VALID_SEED = 1  # windows and negative samples of the validation set are the same for every model


def train_word2vec(recipe: WordRecipe, model_dim: int, out: Path, resume: bool = False) -> Path:
    """Train word vectors in the run folder `out`; returns the final checkpoint folder.

    Raises:
        TrainingError: data, options or checkpoints cannot be used.
    """
    fabric = make_fabric(recipe)
    folder = RunFolder(out, recipe, "word2vec", Word2VecConfig(1, model_dim), resume)
    tokenizer = folder.prepare_tokenizer(fabric, lambda: _make_tokenizer(recipe), recipe.known_tokenizer)
    train = folder.prepare_documents(fabric, tokenizer, lambda: read_documents(recipe.train))
    valid = encode_documents(tokenizer, read_documents(recipe.valid))
    task = WordTask(recipe, model_dim, tokenizer, train, valid, fabric.world_size == 1)
    return Trainer(fabric, recipe, folder, task).run()


class WordTask:
    """Word2Vec; a unit is a word of the text with those around it."""

    unit = "words"
    headline = "top1"
    labels: Sequence[str] = ()

    def __init__(
        self, recipe: WordRecipe, model_dim: int, tokenizer: Tokenizer, train: Documents, valid: Documents, alone: bool
    ) -> None:
        self.recipe, self.tokenizer, self.train, self.valid = recipe, tokenizer, train, valid
        config, cbow = Word2VecConfig(tokenizer.get_vocab_size(), model_dim), recipe.architecture == "cbow"
        # Whole gradients take longer than all else, but other optimizers, norms, scales and sums over processes need them.
        sparse = alone and recipe.optimizer == "sgd" and not recipe.clip_norm and recipe.precision != "fp16"
        self.model = self.loss = Word2Vec(config, recipe.negatives, cbow, sparse)
        counts = np.bincount(train.ids, minlength=config.vocabulary_size)
        counts[PAD] = 0
        # SGD adds the gradients of all occurrences of a word, so that many in one batch diverge.
        self.batch_words = max(BLOCK, recipe.batch_words or min(BATCH_WORDS, config.vocabulary_size // 8))
        self._keep = keep_shares(counts, recipe.subsample)
        self._blocks = self._cut("train", train, np.random.default_rng(recipe.seed))  # of the epoch planned last
        self._cut("valid", valid, np.random.default_rng(VALID_SEED))  # raises an error before the training if nothing is left
        self._sampler = NegativeSampler(counts)

    def describe(self) -> str:
        words = f"{np.count_nonzero(self.train.ids):,} words, {self.model.config.vocabulary_size - 1:,} different ones"
        return f"{words}, {self.batch_words:,} a batch"

    def plan(self, epoch: int) -> list[Indices]:
        rng = np.random.default_rng((self.recipe.seed, epoch))
        self._blocks = self._cut("train", self.train, rng)
        return self._batches(rng.permutation(len(self._blocks)))

    def weight(self, indices: Indices) -> int:
        return self._blocks.words(indices)

    def batch(self, indices: Indices, seed: int) -> tuple[Tensor, ...]:
        return self._collate(self._blocks, indices, np.random.default_rng(seed))

    def validate(self) -> Mapping[str, float]:
        """Measure the loss, and how often the right word has a better score than all negative samples."""
        rng = np.random.default_rng(VALID_SEED)
        blocks, device = self._cut("valid", self.valid, rng), self.model.inputs.weight.device
        loss, best, count = 0.0, 0, 0
        for chosen in self._batches(np.arange(len(blocks))):
            batch = [tensor.to(device) for tensor in self._collate(blocks, chosen, rng)]
            right, wrong, inside = self.model.scores(*batch)
            loss += float(self.model.loss_of(right, wrong, inside))
            best += int(((right > wrong[..., : self.recipe.negatives].amax(2, keepdim=True)) & inside).sum())
            count += int(inside.sum())
        return {"loss": loss / blocks.count, "top1": best / max(1, count)}

    def save(self, folder: Path, provenance: Mapping[str, Any], final: bool) -> None:
        provenance = {**provenance, "training_words": int(np.count_nonzero(self.train.ids))}
        save_word_vectors(self.model, self.tokenizer, provenance, folder)

    def _cut(self, name: str, documents: Documents, rng: np.random.Generator) -> WordBlocks:
        blocks = WordBlocks.of(documents, self._keep, rng, self.recipe.window)
        if not len(blocks):
            raise CorpusError(f"{name}: no known word is left; add text, lower min_count, or raise subsample")
        return blocks

    def _batches(self, order: Indices) -> list[Indices]:
        size = self.batch_words // BLOCK
        return [order[start : start + size] for start in range(0, len(order), size)]

    def _collate(self, blocks: WordBlocks, chosen: Indices, rng: np.random.Generator) -> tuple[Tensor, ...]:
        samples = max(self.recipe.negatives, len(chosen) * BLOCK * self.recipe.negatives // SAMPLE_WEIGHT)
        negatives = self._sampler.draw(samples, rng)
        return tuple(torch.from_numpy(array) for array in (*blocks.examples(chosen, rng), negatives))


def _make_tokenizer(recipe: WordRecipe) -> Tokenizer:
    return train_words(read_texts(recipe.train), recipe.vocabulary_size, recipe.min_count, recipe.lowercase)
