"""Training of language models on packed text: decoder-only models (Radford et al. 2019), and ELMo (Peters et al. 2018)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from triptych_training.checkpoints.encoder import save_elmo
from triptych_training.checkpoints.gpt import GptCheckpoint, save_gpt_checkpoint
from triptych_training.data.batches import Indices
from triptych_training.data.documents import TOKENIZER_DOCUMENTS, Documents, encode_documents, read_documents, read_texts
from triptych_training.data.tokenizer import END, train_gpt_tokenizer
from triptych_training.data.words import BOUNDARY, PAD, train_words
from triptych_training.errors import CorpusError, RecipeError
from triptych_training.evaluation.metrics import next_token_metrics, share, total
from triptych_training.loop.fabric import make_fabric
from triptych_training.loop.recipe import ElmoRecipe, GptRecipe, RowRecipe
from triptych_training.loop.run_folder import RunFolder
from triptych_training.loop.trainer import Trainer
from triptych_training.models.elmo import Elmo, ElmoConfig
from triptych_training.models.gpt import Gpt, GptConfig

Reader = Callable[[Sequence[str]], Iterator[list[str]]]
SAMPLE_TEXTS, SAMPLE_CHARACTERS = 100, 2_000  # beginnings of validation texts stored with the final checkpoint


def train_gpt(recipe: GptRecipe, shape: GptConfig, out: Path, resume: bool = False) -> Path:
    """Train a decoder-only model in the run folder `out`, or resume its training there; returns the final checkpoint folder.

    The vocabulary size of `shape` is replaced by the tokenizer's.

    Raises:
        TrainingError: data, options or checkpoints cannot be used.
    """
    recipe.fit(shape.max_positions)
    fabric = make_fabric(recipe)
    folder = RunFolder(out, recipe, "gpt", shape, resume)
    tokenizer = folder.prepare_tokenizer(fabric, lambda: _make_tokenizer(recipe), recipe.known_tokenizer)
    end = tokenizer.token_to_id(END)
    if end is None:
        raise RecipeError(f"tokenizer: lacks {END}")
    corpus = _encode(fabric, recipe, folder, tokenizer, end, _whole_texts)
    shape = replace(shape, vocabulary_size=tokenizer.get_vocab_size())
    return Trainer(fabric, recipe, folder, LanguageTask(recipe, Gpt(shape), tokenizer, corpus)).run()


def train_elmo(recipe: ElmoRecipe, shape: ElmoConfig, out: Path, resume: bool = False) -> Path:
    """Train an ELMo on sentences, as `train_gpt` does a decoder-only model on whole texts."""
    recipe.fit(shape.max_positions)
    fabric = make_fabric(recipe)
    folder = RunFolder(out, recipe, "elmo", shape, resume)
    tokenizer = folder.prepare_tokenizer(fabric, lambda: _make_word_tokenizer(recipe), recipe.known_tokenizer)
    if tokenizer.token_to_id(BOUNDARY) != PAD:
        raise RecipeError(f"tokenizer: its token {PAD} is not {BOUNDARY}")
    corpus = _encode(fabric, recipe, folder, tokenizer, PAD, _sentences)
    shape = replace(shape, vocabulary_size=tokenizer.get_vocab_size())
    return Trainer(fabric, recipe, folder, LanguageTask(recipe, Elmo(shape), tokenizer, corpus)).run()


@dataclass(frozen=True)
class PackedCorpus:
    """Tokens of all documents in one sequence, each document with an end before and after it, and some texts to keep."""

    train: NDArray[np.int32]
    valid: NDArray[np.int32]
    texts: Sequence[str]


class LanguageTask:
    """Language modelling; rows are consecutive parts of the packed corpus, cut at other places in every epoch."""

    unit = "tokens"
    headline = "perplexity"
    labels: Sequence[str] = ()

    def __init__(self, recipe: RowRecipe, model: Gpt | Elmo, tokenizer: Tokenizer, corpus: PackedCorpus) -> None:
        self.recipe, self.model, self.tokenizer, self.corpus = recipe, model, tokenizer, corpus
        self._first = 0  # token of the epoch planned last

    def describe(self) -> str:
        return f"{len(self.corpus.train):,} tokens, vocabulary of {self.model.config.vocabulary_size:,}"

    def plan(self, epoch: int) -> list[Indices]:
        length = self.recipe.sequence_length
        rng = np.random.default_rng((self.recipe.seed, epoch))
        room = len(self.corpus.train) - length
        self._first = int(rng.integers(min(length, room)))
        return self._batches(rng.permutation((len(self.corpus.train) - 1 - self._first) // length))

    def weight(self, indices: Indices) -> int:
        return len(indices) * self.recipe.sequence_length

    def batch(self, indices: Indices, seed: int) -> tuple[Tensor, ...]:
        return (self._rows(self.corpus.train, indices, self._first),)

    def loss(self, ids: Tensor) -> Tensor:
        return self.model.losses(ids, self.recipe.label_smoothing)

    def validate(self) -> Mapping[str, float]:
        """Measure loss (nats) and perplexity of the validation texts, read in rows without overlap."""
        length, tokens = self.recipe.sequence_length, self.corpus.valid
        device = next(self.model.parameters()).device
        loss, count = 0.0, 0
        for indices in share(self._batches(np.arange((len(tokens) - 1) // length))):
            loss += float(self.model.losses(self._rows(tokens, indices, 0).to(device), smoothing=0.0))
            count += len(indices) * length
        sums = total(loss, count)
        return next_token_metrics(sums[0], int(sums[1]))

    def _batches(self, order: Indices) -> list[Indices]:
        rows = self.recipe.batch_tokens // self.recipe.sequence_length
        return [order[start : start + rows] for start in range(0, len(order), rows)]

    def _rows(self, tokens: NDArray[np.int32], indices: Indices, first: int) -> Tensor:
        """Cut rows of one token more than the sequence length, `[B, T+1]`."""
        length = self.recipe.sequence_length
        places = first + indices[:, None] * length + np.arange(length + 1)
        return torch.from_numpy(tokens[places].astype(np.int64))

    def save(self, folder: Path, provenance: Mapping[str, Any], final: bool) -> None:
        provenance = {**provenance, "training_tokens": len(self.corpus.train)}
        samples = self.corpus.texts if final else ()
        if isinstance(self.model, Gpt):
            save_gpt_checkpoint(GptCheckpoint(self.model, self.tokenizer, provenance, samples), folder)
        else:
            save_elmo(self.model, self.tokenizer, provenance, samples, folder)


def pack(documents: Documents, end: int) -> NDArray[np.int32]:
    """Join documents into one sequence, with an end before the first and after each."""
    starts = documents.sentences[documents.documents]
    return np.insert(documents.ids, starts, end).astype(np.int32)


def _make_tokenizer(recipe: GptRecipe) -> Tokenizer:
    return train_gpt_tokenizer(islice(read_texts(recipe.train), TOKENIZER_DOCUMENTS), recipe.vocabulary_size)


def _make_word_tokenizer(recipe: ElmoRecipe) -> Tokenizer:
    sentences = (sentence for [sentence] in _sentences(recipe.train))
    return train_words(sentences, recipe.vocabulary_size, recipe.min_count, recipe.lowercase)


def _whole_texts(paths: Sequence[str]) -> Iterator[list[str]]:
    return ([text] for text in read_texts(paths))


def _sentences(paths: Sequence[str]) -> Iterator[list[str]]:
    """Read each sentence as a document."""
    return ([sentence] for document in read_documents(paths) for sentence in document)


def _encode(fabric: Fabric, recipe: RowRecipe, folder: RunFolder, tokenizer: Tokenizer, end: int, read: Reader) -> PackedCorpus:
    """Tokenize and pack the texts of a training; `read` makes documents of files, and `end` is the token between them."""
    train = pack(folder.prepare_documents(fabric, tokenizer, lambda: read(recipe.train)), end)
    valid = pack(encode_documents(tokenizer, read(recipe.valid)), end)
    for name, tokens in (("train", train), ("valid", valid)):
        if len(tokens) <= recipe.sequence_length:
            raise CorpusError(
                f"{name}: the text has {len(tokens):,} tokens, a row {recipe.sequence_length + 1:,}, sequence_length and one; "
                f"add text, or lower sequence_length"
            )
    texts = ["".join(document)[:SAMPLE_CHARACTERS] for document in islice(read(recipe.valid), SAMPLE_TEXTS)]
    return PackedCorpus(train, valid, texts)
