"""Rows for pre-training: spans of text, and masked tokens in them (Devlin et al. 2018, section 3.1 and appendix A.2)."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from triptych_training.data.documents import Documents

MASK_SHARE, RANDOM_SHARE = 0.8, 0.1  # of the tokens to predict; the others are not changed
SPECIAL_SINGLE, SPECIAL_PAIR = 2, 3  # special tokens of [CLS] A [SEP] and of [CLS] A [SEP] B [SEP]


@dataclass(frozen=True)
class Segments:
    """Rows as offsets into the documents' ids.

    spans    `[R, 4]`: A is `ids[spans[i, 0]:spans[i, 1]]`, B is `ids[spans[i, 2]:spans[i, 3]]` and may be empty
    follows  `[R]`, true if B follows A in its document
    """

    spans: NDArray[np.int64]
    follows: NDArray[np.bool_]

    @property
    def text_sizes(self) -> NDArray[np.int64]:
        """Tokens of A and B in each row."""
        return (self.spans[:, 1] - self.spans[:, 0]) + (self.spans[:, 3] - self.spans[:, 2])

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Tokens of each row, special ones included."""
        pair = self.spans[:, 3] > self.spans[:, 2]
        return self.text_sizes + np.where(pair, SPECIAL_PAIR, SPECIAL_SINGLE)


def cut_chunks(documents: Documents, max_tokens: int) -> list[NDArray[np.int64]]:
    """Divide documents into chunks of whole sentences with at most `max_tokens` tokens; longer sentences are cut.

    Each chunk is given as the offsets of its sentences into the ids.
    """
    chunks: list[NDArray[np.int64]] = []
    for first, last in zip(documents.documents[:-1], documents.documents[1:], strict=True):
        sentences = np.unique(documents.sentences[first : last + 1])  # drops empty sentences: some characters give no token
        bounds = _split_long(sentences, max_tokens)
        start = 0
        while start < len(bounds) - 1:
            end = int(np.searchsorted(bounds, bounds[start] + max_tokens, side="right")) - 1
            chunks.append(bounds[start : end + 1])
            start = end
    return chunks


def _split_long(bounds: NDArray[np.int64], max_tokens: int) -> NDArray[np.int64]:
    sizes = np.diff(bounds)
    if not len(sizes) or sizes.max() <= max_tokens:
        return bounds
    cuts = [np.arange(start, end, max_tokens) for start, end in pairwise(bounds)]
    return np.append(np.concatenate(cuts), bounds[-1])


def whole_segments(chunks: list[NDArray[np.int64]]) -> Segments:
    """Make rows of one chunk each, without B, as RoBERTa does (Liu et al. 2019)."""
    spans = np.zeros((len(chunks), 4), np.int64)
    spans[:, 0] = [chunk[0] for chunk in chunks]
    spans[:, 1] = [chunk[-1] for chunk in chunks]
    return Segments(spans, np.ones(len(chunks), bool))


def paired_segments(chunks: list[NDArray[np.int64]], seed: int) -> Segments:
    """Make rows of two spans; in half of them B follows A, in the others B comes from another row.

    Rows whose B are nearly of one length form couples. Both B are cut to the shorter one, then half of the couples exchange
    them: neither lengths nor ends of sentences tell whether B follows. A chunk of a single sentence is not split.
    """
    rng = np.random.default_rng(seed)
    whole = whole_segments(chunks)
    spans, follows = whole.spans, whole.follows
    several = np.array([len(chunk) > 2 for chunk in chunks], bool)
    splits = [chunk[rng.integers(1, len(chunk) - 1)] if ok else chunk[-1] for chunk, ok in zip(chunks, several, strict=True)]
    spans[:, 3] = np.where(several, spans[:, 1], 0)
    spans[:, 1] = splits
    spans[:, 2] = np.where(several, spans[:, 1], 0)
    rows = np.flatnonzero(several)
    rows = rows[np.lexsort((rng.random(len(rows)), spans[rows, 3] - spans[rows, 2]))]
    couples = rows[: len(rows) // 2 * 2].reshape(-1, 2)
    starts = spans[couples, 2]
    spans[couples, 3] = starts + (spans[couples, 3] - starts).min(1, keepdims=True)
    exchanged = couples[rng.random(len(couples)) < 0.5]
    spans[exchanged, 2:] = spans[exchanged[:, ::-1], 2:]
    follows[exchanged] = False
    return Segments(spans, follows)


@dataclass(frozen=True)
class Rows:
    """Padded rows `[R, T]`; `text` is true for the tokens of A and B."""

    ids: NDArray[np.int64]
    segments: NDArray[np.int64]
    text: NDArray[np.bool_]


def make_rows(documents: Documents, spans: NDArray[np.int64], cls_id: int, sep_id: int, pad_id: int) -> Rows:
    """Make rows `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` from `spans` `[R, 4]`, padded to the longest."""
    first, second = spans[:, 1] - spans[:, 0], spans[:, 3] - spans[:, 2]
    sizes = first + second + np.where(second > 0, SPECIAL_PAIR, SPECIAL_SINGLE)
    position = np.arange(sizes.max())
    in_first = (position >= 1) & (position <= first[:, None])
    in_second = (position >= first[:, None] + 2) & (position < (first + second)[:, None] + 2)
    ids = np.full(in_first.shape, pad_id, np.int64)
    ids[:, 0] = cls_id
    ids[np.arange(len(spans)), first + 1] = ids[np.arange(len(spans)), sizes - 1] = sep_id
    ids[in_first] = documents.ids[(spans[:, :1] + position - 1)[in_first]]
    ids[in_second] = documents.ids[(spans[:, 2:3] + position - first[:, None] - 2)[in_second]]
    segments = (position >= first[:, None] + 2) & (position < sizes[:, None])
    return Rows(ids, segments.astype(np.int64), in_first | in_second)


@dataclass(frozen=True)
class Masker:
    """Masks tokens, other ones at every call ("dynamic masking"; Liu et al. 2019)."""

    share: float  # of a row's text that is to be predicted
    mask_id: int  # [MASK]
    drawn: NDArray[np.int64]  # ids that may replace others: no special tokens

    def count(self, tokens: int) -> int:
        """Return how many of a row's `tokens` to predict: at least one."""
        return max(1, round(self.share * tokens))

    def mask(self, ids: NDArray[np.int64], text: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Mask tokens of the row `ids` `[T]` in place; return their positions, ascending.

        `text` holds the positions that are neither special tokens nor padding.
        """
        chosen = np.sort(rng.choice(text, self.count(len(text)), replace=False))
        self._replace(ids, chosen, rng)
        return chosen

    def mask_rows(self, ids: NDArray[np.int64], text: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int64]:
        """Mask tokens of every row of `ids` `[R, T]` (contiguous) in place; return their flattened positions, ascending.

        `text` `[R, T]` is true for what is neither special tokens nor padding.
        """
        counts = np.array([self.count(size) for size in text.sum(1).tolist()])
        order = np.argsort(np.where(text, rng.random(ids.shape), 2.0), axis=1)
        chosen = np.zeros(ids.shape, bool)
        np.put_along_axis(chosen, order, np.arange(ids.shape[1]) < counts[:, None], axis=1)
        positions = np.flatnonzero(chosen)
        self._replace(ids.reshape(-1), positions, rng)
        return positions

    def _replace(self, ids: NDArray[np.int64], positions: NDArray[np.int64], rng: np.random.Generator) -> None:
        draw = rng.random(len(positions))
        ids[positions[draw < MASK_SHARE]] = self.mask_id
        random = positions[(draw >= MASK_SHARE) & (draw < MASK_SHARE + RANDOM_SHARE)]
        ids[random] = self.drawn[rng.integers(0, len(self.drawn), len(random))]
