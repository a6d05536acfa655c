"""Training of ELMo: forward and backward language models over words (Peters et al. 2018)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tokenizers import Tokenizer

from triptych_training.data.documents import read_documents
from triptych_training.data.words import BOUNDARY, PAD, train_words
from triptych_training.errors import RecipeError
from triptych_training.loop.fabric import make_fabric
from triptych_training.loop.recipe import ElmoRecipe
from triptych_training.loop.run_folder import RunFolder
from triptych_training.loop.trainer import Trainer
from triptych_training.models.elmo import Elmo, ElmoConfig
from triptych_training.tasks.gpt import LanguageTask, encode_corpus


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
    return Trainer(fabric, recipe, folder, LanguageTask(recipe, Elmo(shape), tokenizer, corpus)).run()


def _make_tokenizer(recipe: ElmoRecipe) -> Tokenizer:
    sentences = (sentence for [sentence] in _sentences(recipe.train))
    return train_words(sentences, recipe.vocabulary_size, recipe.min_count, recipe.lowercase)


def _sentences(paths: Sequence[str]) -> Iterator[list[str]]:
    """Read each sentence as a document."""
    return ([sentence] for document in read_documents(paths) for sentence in document)
