"""Training of ELMo: forward and backward language models over words (Peters et al. 2018)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from torch import Tensor

from triptych_training.checkpoints.encoder import save_elmo
from triptych_training.data.documents import read_documents
from triptych_training.data.words import BOUNDARY, PAD, train_words
from triptych_training.errors import RecipeError
from triptych_training.loop.fabric import make_fabric
from triptych_training.loop.recipe import ElmoRecipe
from triptych_training.loop.run_folder import RunFolder
from triptych_training.loop.trainer import Trainer
from triptych_training.models.elmo import Elmo, ElmoConfig
from triptych_training.tasks.gpt import NextTokenLoss, RunningTextTask, encode_corpus


def train_elmo(recipe: ElmoRecipe, shape: ElmoConfig, out: Path, resume: bool = False) -> Path:
    """Train an ELMo in the run folder `out`, or resume its training there; returns the final checkpoint folder.

    The vocabulary size of `shape` is replaced by the tokenizer's.

    Raises:
        TrainingError: data, options or checkpoints cannot be used.
    """
    recipe.fit(shape.max_positions)
    fabric = make_fabric(recipe)
    folder = RunFolder(out, recipe, "elmo", shape, resume)
    tokenizer = folder.prepare_tokenizer(fabric, lambda: _make_tokenizer(recipe), recipe.known_tokenizer)
    if tokenizer.token_to_id(BOUNDARY) != PAD:
        raise RecipeError(f"tokenizer: its token {PAD} is not {BOUNDARY}")
    corpus = encode_corpus(fabric, recipe, folder, tokenizer, PAD, _sentences)
    shape = replace(shape, vocabulary_size=tokenizer.get_vocab_size())
    return Trainer(fabric, recipe, folder, ElmoTask(recipe, Elmo(shape), tokenizer, corpus)).run()


class BothDirectionsLoss(NextTokenLoss[Elmo]):
    """Sum of the cross-entropies of tokens, the mean of both directions."""

    def forward(self, ids: Tensor) -> Tensor:
        """`[B, T+1]` -> scalar."""
        return self.model.losses(ids, self.smoothing)


class ElmoTask(RunningTextTask[Elmo]):
    """Language modelling in both directions; sentences are packed, with a boundary between them."""

    loss_type = BothDirectionsLoss

    def _write(self, folder: Path, provenance: Mapping[str, Any], samples: Sequence[str]) -> None:
        save_elmo(self.model, self.tokenizer, provenance, samples, folder)


def _make_tokenizer(recipe: ElmoRecipe) -> Tokenizer:
    sentences = (sentence for [sentence] in _sentences(recipe.train))
    return train_words(sentences, recipe.vocabulary_size, recipe.min_count, recipe.lowercase)


def _sentences(paths: Sequence[str]) -> Iterator[list[str]]:
    """Read each sentence as a document."""
    return ([sentence] for document in read_documents(paths) for sentence in document)
