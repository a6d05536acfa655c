"""Masked-token fill: what may stand at each [MASK] (Devlin et al. 2019).

It means what Hugging Face's fill-mask pipeline means, but a target that is not one token, alone or behind a space, is refused,
where the pipeline takes the target's first piece, and `sequence` is the caller's own text with the token put in, not the tokens
decoded. The mask is written as the model's own tokenizer has it: "[MASK]", or "<mask>".
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from triptych_serving.bundle.manifest import TextManifest
from triptych_serving.encoding.options import Work
from triptych_serving.encoding.text_runner import LOG_PROBABILITIES, SCORES, TOKENS, TextRow
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.results import FilledMask, FilledText, MaskCandidate
from triptych_serving.models.text.task import check_range, make_row
from triptych_serving.runtime.session import Array
from triptych_serving.scheduling.request import Item
from triptych_serving.text.bert_tokenizer import BertCodec
from triptych_serving.text.tokenizers import Encoding, is_unicode
from triptych_serving.text.validation import CONTENTS

DEFAULT_TOP_K = 5
MAX_TOP_K = 1_000
MAX_ANSWER_CHARACTERS = 16_000_000  # of all sequences of one request; each candidate has the whole text

Span = tuple[int, int]
Ids = NDArray[np.int64]


def prepare_fill_mask(
    codec: BertCodec, manifest: TextManifest, texts: Sequence[str], top_k: int | None, targets: Sequence[str]
) -> Work[FilledText]:
    """Check and tokenize.

    Raises:
        InvalidInputError: a text is empty, too long or has no mask, a target is not one token, `top_k` is out of range, or the
            answers would be too large.
    """
    k = check_range("top_k", DEFAULT_TOP_K if top_k is None else top_k, 1, MAX_TOP_K)
    ids = _target_ids(codec, targets) if targets else None
    encodings = codec.encode_masked(texts)
    rows = [_row(encoding, index, codec, manifest, k, ids) for index, encoding in enumerate(encodings)]
    size = sum(len(row.places) * k * len(text) for row, text in zip(rows, texts, strict=True))
    if size > MAX_ANSWER_CHARACTERS:
        limit = f"at most {MAX_ANSWER_CHARACTERS:,} fit into one answer; ask for fewer candidates, or send fewer texts"
        raise InvalidInputError("top_k", f"{k:,} candidates of each mask make {size:,} characters of text, {limit}")
    items = [Item(row, len(row.ids)) for row in rows]
    spans = [_spans(text, encoding, row, codec.mask) for text, encoding, row in zip(texts, encodings, rows, strict=True)]
    return Work(items, partial(_read, items, texts, spans, codec), size)


def _row(encoding: Encoding, index: int, codec: BertCodec, manifest: TextManifest, k: int, targets: Ids | None) -> TextRow:
    row = make_row(encoding, (SCORES, TOKENS) if targets is None else (LOG_PROBABILITIES,))
    row.places = np.flatnonzero(row.ids == manifest.tokens.mask)
    if not len(row.places):
        raise InvalidInputError(CONTENTS.whole(index), f"there is no {codec.mask} to fill")
    row.k, row.targets = k, targets
    return row


def _target_ids(codec: BertCodec, targets: Sequence[str]) -> Ids:
    """Each target's id, once."""
    return np.array(list(dict.fromkeys(_target_id(codec, index, word) for index, word in enumerate(targets))), np.int64)


def _target_id(codec: BertCodec, index: int, word: str) -> int:
    field = f"targets[{index}]"
    if not word.strip():
        raise InvalidInputError(field, "the target is empty")
    if not is_unicode(word):
        raise InvalidInputError(field, "the target is not Unicode, it has a lone surrogate")
    ids = codec.pieces(word)
    if len(ids) != 1 and codec.spaced:  # where words carry the space before them, it is easily forgotten
        spaced = codec.pieces(f" {word}")
        ids = spaced if len(spaced) == 1 else ids
    if len(ids) != 1:
        pieces = " ".join(map(codec.token, ids[:10]))
        raise InvalidInputError(field, f"{word!r} is {len(ids):,} tokens of the model ({pieces}), a target must be one")
    if ids[0] == codec.unknown and word != codec.token(ids[0]):
        raise InvalidInputError(field, f"{word!r} is not in the model's vocabulary")
    return ids[0]


def _spans(text: str, encoding: Encoding, row: TextRow, mask: str) -> list[Span]:
    """Where each mask stands in the text."""
    offsets = encoding.offsets
    starts = [text.index(mask, offsets[place][0]) for place in row.places]  # an offset may include the space before
    return [(start, start + len(mask)) for start in starts]


def _read(items: Sequence[Item], texts: Sequence[str], spans: Sequence[list[Span]], codec: BertCodec) -> list[FilledText]:
    return [
        FilledText(_masks(item, partial(_candidate, codec, text), places), item.size)
        for item, text, places in zip(items, texts, spans, strict=True)
    ]


def _masks(item: Item, make: Callable[[Span, float, int], MaskCandidate], spans: Sequence[Span]) -> tuple[FilledMask, ...]:
    scores, tokens = _ranked(item)
    return tuple(
        FilledMask(tuple(map(partial(make, span), row_scores, row_tokens)))
        for span, row_scores, row_tokens in zip(spans, scores.tolist(), tokens.tolist(), strict=True)
    )


def _ranked(item: Item) -> tuple[Array, Array]:
    """Probabilities and ids, [masks, candidates], best first."""
    row: TextRow = item.payload
    if row.targets is None:
        return item.result[SCORES], item.result[TOKENS]
    scores = np.exp(item.result[LOG_PROBABILITIES])
    order = np.argsort(-scores, axis=1, kind="stable")[:, : row.k]
    return np.take_along_axis(scores, order, axis=1), row.targets[order]


def _candidate(codec: BertCodec, text: str, span: Span, score: float, token: int) -> MaskCandidate:
    return MaskCandidate(score, token, codec.piece(token), _fill(codec, text[: span[0]], token) + text[span[1] :])


def _fill(codec: BertCodec, before: str, token: int) -> str:
    """The text before a mask with a token behind it."""
    piece = codec.piece(token)
    if codec.spaced:
        before, piece = before.rstrip(), codec.behind(token)
    elif codec.prefix and piece.startswith(codec.prefix) and len(piece) > len(codec.prefix):  # it goes on with the word before
        before, piece = before.rstrip(), piece.removeprefix(codec.prefix)
    return before + (piece.removeprefix(" ") if not before or before[-1].isspace() else piece)
