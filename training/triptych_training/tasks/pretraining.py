"""Pre-training of BERT: masked tokens and next sentences over documents (Devlin et al. 2018)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from triptych_training.checkpoints.encoder import TextCheckpoint, save_bert_checkpoint
from triptych_training.data.batches import Indices, plan_batches
from triptych_training.data.documents import TOKENIZER_DOCUMENTS, Documents, encode_documents, read_documents
from triptych_training.data.pretraining_rows import (
    SPECIAL_PAIR,
    SPECIAL_SINGLE,
    Masker,
    Segments,
    cut_chunks,
    make_rows,
    paired_segments,
    whole_segments,
)
from triptych_training.data.wordpiece import CLS, MASK, PAD, SEP, ordinary_ids, train_wordpiece
from triptych_training.errors import CorpusError, RecipeError
from triptych_training.evaluation.metrics import masked_metrics, share, total
from triptych_training.loop.fabric import make_fabric
from triptych_training.loop.recipe import PretrainingRecipe
from triptych_training.loop.run_folder import RunFolder
from triptych_training.loop.trainer import Trainer
from triptych_training.models.bert import BertConfig, BertForPretraining

VALID_SEED = 1  # masks and pairs of the validation set are the same for every model
VALID_SHARE = 0.15  # of the validation set's tokens are masked, whatever the recipe masks in training
SPECIAL_IDS = {"pad_id": PAD, "cls_id": CLS, "sep_id": SEP, "mask_id": MASK}  # BertConfig's names
SAMPLE_TEXTS = 300  # validation texts stored with the final checkpoint

# Masks tokens of rows of ids where there is text, in place; returns their positions in the flattened rows.
Mask = Callable[[NDArray[np.int64], NDArray[np.bool_]], NDArray[np.int64]]


def pretrain(recipe: PretrainingRecipe, shape: BertConfig, out: Path, resume: bool = False) -> Path:
    """Pre-train a BERT in the run folder `out`, or resume its training there; returns the final checkpoint folder.

    The vocabulary size and special ids of `shape` are replaced by the tokenizer's.

    Raises:
        TrainingError: data, options or checkpoints cannot be used.
    """
    recipe.fit(shape.max_positions)
    fabric = make_fabric(recipe)
    folder = RunFolder(out, recipe, "bert", shape, resume)
    tokenizer = folder.prepare_tokenizer(fabric, lambda: _make_tokenizer(recipe), recipe.known_tokenizer)
    corpus = _encode(fabric, recipe, folder, tokenizer)
    shape = fit_shape(shape, tokenizer)
    return Trainer(fabric, recipe, folder, PretrainingTask(recipe, shape, tokenizer, corpus)).run()


def fit_shape(shape: BertConfig, tokenizer: Tokenizer) -> BertConfig:
    """Return `shape` with the tokenizer's vocabulary size and special ids.

    Raises:
        RecipeError: the tokenizer lacks a special token.
    """
    ids = {name: tokenizer.token_to_id(token) for name, token in SPECIAL_IDS.items()}
    if missing := [SPECIAL_IDS[name] for name, number in ids.items() if number is None]:
        raise RecipeError(f"tokenizer: lacks {', '.join(missing)}")
    known: dict[str, Any] = {"vocabulary_size": tokenizer.get_vocab_size(), **ids}
    return replace(shape, **known)


@dataclass(frozen=True)
class TextCorpus:
    """Encoded documents; `texts` are some sentences of the validation files."""

    train: Documents
    valid: Documents
    texts: Sequence[str]


def draw_valid(row: int) -> np.random.Generator:
    """Return the generator of a validation row's masks; it does not depend on model or batches."""
    return np.random.default_rng((VALID_SEED, row))


def _mask_valid(masker: Masker, indices: Indices, ids: NDArray[np.int64], text: NDArray[np.bool_]) -> NDArray[np.int64]:
    rows = zip(ids, text, map(draw_valid, indices), strict=True)
    masked = [masker.mask(row, np.flatnonzero(inside), rng) for row, inside, rng in rows]
    return np.concatenate([number * ids.shape[1] + places for number, places in enumerate(masked)])


class PretrainingTask:
    """Pre-training; a unit is a masked token."""

    unit = "masks"
    headline = "top1"
    labels: Sequence[str] = ()

    def __init__(self, recipe: PretrainingRecipe, shape: BertConfig, tokenizer: Tokenizer, corpus: TextCorpus) -> None:
        self.recipe, self.tokenizer, self.corpus = recipe, tokenizer, corpus
        self.model = BertForPretraining(shape, recipe.next_sentence)
        self.masker = Masker(recipe.mask_share, shape.mask_id, ordinary_ids(tokenizer))
        self._max_text = recipe.sequence_length - (SPECIAL_PAIR if recipe.next_sentence else SPECIAL_SINGLE)
        self._chunks = cut_chunks(corpus.train, self._max_text)
        self._rows = whole_segments(self._chunks)  # of the epoch planned last

    def describe(self) -> str:
        train, vocabulary = self.corpus.train, self.model.config.vocabulary_size
        return f"{len(train.ids):,} tokens in {len(train):,} documents, vocabulary of {vocabulary:,}"

    def plan(self, epoch: int) -> list[Indices]:
        self._rows = self._segments(self._chunks, 1_000_003 * self.recipe.seed + epoch)
        return plan_batches(self._rows.sizes[:, None], self.recipe.batch_tokens, f"{self.recipe.seed}/{epoch}")

    def weight(self, indices: Indices) -> int:
        return sum(self.masker.count(int(size)) for size in self._rows.text_sizes[indices])

    def batch(self, indices: Indices, seed: int) -> tuple[Tensor, ...]:
        mask = partial(self.masker.mask_rows, rng=np.random.default_rng(seed))
        return self._collate(self.corpus.train, self._rows, indices, mask)

    def loss(self, ids: Tensor, segments: Tensor, masked: Tensor, labels: Tensor, follows: Tensor) -> Tensor:
        """Sum the masked tokens' cross-entropies, plus that of next-sentence prediction with the same weight.

        Args:
            ids, segments: `[B, T]`.
            masked, labels: flat positions `[M]`, and their tokens.
            follows: `[B]`, 0 or 1; -1 for a row without B.
        """
        tokens, next_sentence = self.model(ids, segments, masked)
        loss = functional.cross_entropy(tokens.float(), labels, label_smoothing=self.recipe.label_smoothing, reduction="sum")
        if next_sentence is None:
            return loss
        total = functional.cross_entropy(next_sentence.float(), follows, ignore_index=-1, reduction="sum")
        return loss + len(labels) * total / (follows >= 0).sum().clamp(min=1)

    def validate(self) -> Mapping[str, float]:
        """Measure loss (nats), perplexity and accuracy of masked tokens, and accuracy of next sentences."""
        documents = self.corpus.valid
        chunks = cut_chunks(documents, self._max_text)
        metrics = self._masked_metrics(documents, whole_segments(chunks))
        if self.recipe.next_sentence:
            metrics |= self._pair_accuracy(documents, self._segments(chunks, VALID_SEED))
        return metrics

    def save(self, folder: Path, provenance: Mapping[str, Any], final: bool) -> None:
        provenance = {**provenance, "training_tokens": len(self.corpus.train.ids)}
        samples = self.corpus.texts if final else ()
        save_bert_checkpoint(TextCheckpoint(self.model, self.tokenizer, (), provenance, samples), folder)

    def _segments(self, chunks: list[NDArray[np.int64]], seed: int) -> Segments:
        if self.recipe.next_sentence:
            return paired_segments(chunks, seed)
        return whole_segments(chunks)

    def _collate(self, documents: Documents, rows: Segments, chosen: Indices, mask: Mask) -> tuple[Tensor, ...]:
        config = self.model.config
        assert config.cls_id is not None, "only decoder-only models lack it"
        assert config.sep_id is not None, "only decoder-only models lack it"
        made = make_rows(documents, rows.spans[chosen], config.cls_id, config.sep_id, config.pad_id)
        original = made.ids.reshape(-1).copy()
        masked = mask(made.ids, made.text)
        follows = np.where(rows.spans[chosen, 3] > 0, rows.follows[chosen], -1).astype(np.int64)
        arrays = (made.ids, made.segments, masked, original[masked], follows)
        return tuple(torch.from_numpy(array) for array in arrays)

    def _batches(self, documents: Documents, rows: Segments) -> Iterator[tuple[Tensor, ...]]:
        masker = replace(self.masker, share=VALID_SHARE)
        device = next(self.model.parameters()).device
        for indices in share(plan_batches(rows.sizes[:, None], self.recipe.batch_tokens, str(VALID_SEED))):
            mask = partial(_mask_valid, masker, indices)
            yield tuple(tensor.to(device) for tensor in self._collate(documents, rows, indices, mask))

    def _masked_metrics(self, documents: Documents, rows: Segments) -> dict[str, float]:
        loss, first, fifth, count = 0.0, 0, 0, 0
        for ids, segments, masked, labels, _ in self._batches(documents, rows):
            logits = self.model(ids, segments, masked)[0].float()
            loss += float(functional.cross_entropy(logits, labels, reduction="sum"))
            best = logits.topk(5).indices == labels[:, None]
            first, fifth, count = first + int(best[:, 0].sum()), fifth + int(best.sum()), count + len(labels)
        sums = total(loss, first, fifth, count)
        return masked_metrics(sums[0], *map(int, sums[1:]))

    def _pair_accuracy(self, documents: Documents, rows: Segments) -> dict[str, float]:
        right, count = 0, 0
        for ids, segments, masked, _, follows in self._batches(documents, rows):
            logits = self.model(ids, segments, masked)[1]
            known = follows >= 0
            right += int((logits.argmax(-1) == follows)[known].sum())
            count += int(known.sum())
        right, count = map(int, total(right, count))
        return {"next_sentence": right / max(1, count), "sentence_pairs": count}


def _make_tokenizer(recipe: PretrainingRecipe) -> Tokenizer:
    beginning = islice(read_documents(recipe.train), TOKENIZER_DOCUMENTS)
    return train_wordpiece((text for document in beginning for text in document), recipe.vocabulary_size, recipe.lowercase)


def _encode(fabric: Fabric, recipe: PretrainingRecipe, folder: RunFolder, tokenizer: Tokenizer) -> TextCorpus:
    train = folder.prepare_documents(fabric, tokenizer, lambda: read_documents(recipe.train))
    valid = encode_documents(tokenizer, read_documents(recipe.valid))
    for name, documents in (("train", train), ("valid", valid)):
        if not len(documents.ids):
            raise CorpusError(f"{name}: the files contain no tokens")
    return TextCorpus(train, valid, sample_texts(recipe.valid, tokenizer, recipe.sequence_length))


def sample_texts(paths: Sequence[str], tokenizer: Tokenizer, max_tokens: int) -> list[str]:
    """Choose a few sentences of each document that fit the model."""
    texts = [text for document in read_documents(paths) for text in document[1:6]]
    sizes = [len(encoding.ids) for encoding in tokenizer.encode_batch(texts)]
    return [text for text, size in zip(texts, sizes, strict=True) if 8 <= size <= max_tokens][:SAMPLE_TEXTS]
