"""Training of Word2Vec: CBOW or skip-gram over sentences (Mikolov et al. 2013)."""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from triptych_training.checkpoints.encoder import save_word_vectors
from triptych_training.data.batches import Indices
from triptych_training.data.documents import Documents, encode_documents, read_documents
from triptych_training.data.words import NegativeSampler, WordWindows, keep_shares, train_words
from triptych_training.errors import CorpusError
from triptych_training.loop.fabric import make_fabric
from triptych_training.loop.recipe import BATCH_WORDS, EPOCH_STEPS, WordRecipe
from triptych_training.loop.run_folder import RunFolder
from triptych_training.loop.trainer import Trainer
from triptych_training.models.word2vec import PAD, Word2Vec, Word2VecConfig

VALID_SEED = 1  # windows and negative samples of the validation set are the same for every model


def train_word2vec(recipe: WordRecipe, model_dim: int, out: Path, resume: bool = False) -> Path:
    """Train word vectors in the run folder `out`; returns the final checkpoint folder.

    Raises:
        TrainingError: data, options or checkpoints cannot be used.
    """
    fabric = make_fabric(recipe)
    folder = RunFolder(out, recipe, "word2vec", Word2VecConfig(1, model_dim), resume)
    sentences, options = chain.from_iterable(read_documents(recipe.train)), (recipe.min_count, recipe.lowercase)
    tokenizer = folder.prepare_tokenizer(fabric, lambda: train_words(sentences, recipe.vocabulary_size, *options))
    train = folder.prepare_documents(fabric, tokenizer, lambda: read_documents(recipe.train))
    valid = encode_documents(tokenizer, read_documents(recipe.valid))
    return Trainer(fabric, recipe, folder, WordTask(recipe, model_dim, tokenizer, train, valid)).run()


class WordTask:
    """Word2Vec; a unit is a word of the text with those around it."""

    unit = "words"
    headline = "top1"

    def __init__(self, recipe: WordRecipe, model_dim: int, tokenizer: Tokenizer, train: Documents, valid: Documents) -> None:
        self.recipe, self.tokenizer, self.train, self.valid = recipe, tokenizer, train, valid
        self.model = self.loss = Word2Vec(Word2VecConfig(tokenizer.get_vocab_size(), model_dim))
        counts = np.bincount(train.ids, minlength=self.model.config.vocabulary_size)
        counts[PAD] = 0
        self._keep = keep_shares(counts, recipe.subsample)
        self._windows = self._cut(train, np.random.default_rng(recipe.seed))  # of the epoch planned last
        self._sampler = NegativeSampler(counts)
        least, most = BATCH_WORDS
        self.batch_words = recipe.batch_words or min(most, max(least, len(self._windows.ids) // EPOCH_STEPS))

    def describe(self) -> str:
        words = f"{np.count_nonzero(self.train.ids):,} words, {self.model.config.vocabulary_size - 1:,} different ones"
        return f"{words}, {self.batch_words:,} a batch"

    def plan(self, epoch: int) -> list[Indices]:
        rng = np.random.default_rng((self.recipe.seed, epoch))
        self._windows = self._cut(self.train, rng)
        order = rng.permutation(len(self._windows.ids))
        return [order[start : start + self.batch_words] for start in range(0, len(order), self.batch_words)]

    def weight(self, indices: Indices) -> int:
        return len(indices)

    def batch(self, indices: Indices, seed: int) -> tuple[Tensor, ...]:
        return self._collate(self._windows, indices, np.random.default_rng(seed))

    def validate(self) -> Mapping[str, float]:
        """Measure the loss, and how often the right word has a better score than all negative samples."""
        rng = np.random.default_rng(VALID_SEED)
        windows, device = self._cut(self.valid, rng), self.model.inputs.weight.device
        loss, right, count = 0.0, 0, 0
        for start in range(0, len(windows.ids), self.batch_words):
            chosen = np.arange(start, min(start + self.batch_words, len(windows.ids)))
            given, predicted, negatives = (tensor.to(device) for tensor in self._collate(windows, chosen, rng))
            loss += float(self.model(given, predicted, negatives))
            inside = (predicted != PAD) & (given != PAD).any(1, keepdim=True)
            scores = self.model.scores(given, torch.cat((predicted, negatives), 1))
            best, others = scores.tensor_split((predicted.shape[1],), 1)
            right += int(((best > others.amax(1, keepdim=True)) & inside).sum())
            count += int(inside.sum())
        return {"loss": loss / max(1, len(windows.ids)), "top1": right / max(1, count)}

    def save(self, folder: Path, provenance: Mapping[str, Any], final: bool) -> None:
        provenance = {**provenance, "training_words": int(np.count_nonzero(self.train.ids))}
        save_word_vectors(self.model, self.tokenizer, provenance, folder)

    def _cut(self, documents: Documents, rng: np.random.Generator) -> WordWindows:
        windows = WordWindows.of(documents, self._keep, rng, self.recipe.window, self.recipe.architecture == "cbow")
        if not len(windows.ids):
            raise CorpusError("train, valid: no known word is left; lower min_count, or raise subsample")
        return windows

    def _collate(self, windows: WordWindows, chosen: Indices, rng: np.random.Generator) -> tuple[Tensor, ...]:
        negatives = self._sampler.draw(len(chosen), self.recipe.negatives, rng)
        return tuple(torch.from_numpy(array) for array in (*windows.examples(chosen, rng), negatives))
