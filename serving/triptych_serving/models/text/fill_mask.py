"""Masked-token fill: candidates for each [MASK] (Devlin et al. 2019).

Results equal those of Hugging Face's fill-mask pipeline, with two differences: a target that is not one token, alone or after a
space, is rejected, where the pipeline takes the target's first piece; and `sequence` is the caller's own text with the token
put in, not the decoded tokens. The mask is written as in the model's own tokenizer: "[MASK]", or "<mask>".
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from triptych_serving.bundle.manifest import FILL_MASK, TextManifest
from triptych_serving.encoding.options import Work
from triptych_serving.encoding.text_runner import LOG_PROBABILITIES, SCORES, TOKENS, TextRow
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.request_cost import NUMBER_BYTES, ROW_BYTES, check_range, check_results
from triptych_serving.models.text.task import TextParts, TextTask, make_row
from triptych_serving.runtime.session import Array
from triptych_serving.scheduling.request import Item
from triptych_serving.text.bert_tokenizer import BertTokenizer
from triptych_serving.text.spans import Span
from triptych_serving.text.tokenizers import Encoding, is_unicode
from triptych_serving.text.validation import CONTENTS
from triptych_text.steps import Steps

DEFAULT_TOP_K = 5
MAX_TOP_K = 1_000
CANDIDATE_BYTES = 2 * ROW_BYTES  # of a candidate in a response, besides its sequence
COPIED = 16  # bytes of a response that are made in the time in which one character is tokenized
MAX_ANSWER_BYTES = 1 << 26  # of one request, also where no response limits it: each candidate has the whole text
LONGEST_TARGET = 256  # characters; no token is longer
TARGETS_TOGETHER = 64  # looked up in one step

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MaskCandidate:
    """A candidate token for a mask."""

    score: float  # probability over the whole vocabulary
    token: int  # id
    token_str: str
    sequence: str  # the text with this mask filled; other masks stay


@dataclass(frozen=True, slots=True)
class FilledMask:
    """The candidates for one mask, best first."""

    candidates: tuple[MaskCandidate, ...]


@dataclass(frozen=True, slots=True)
class FilledText:
    """The masks of one text, from left to right."""

    masks: tuple[FilledMask, ...]
    token_count: int  # including [CLS] and [SEP]


def prepare_fill_mask(
    model: TextParts,
    texts: Sequence[str],
    *,
    top_k: int | None = None,
    targets: Sequence[str] = (),
) -> Steps[Work[FilledText]]:
    """Check and tokenize texts with one mask or several each, in small steps.

    Args:
        texts: order is kept.
        top_k: candidates for each mask, 1 to 1,000; 5 by default.
        targets: rank only these words, each one token of the model.

    Raises:
        InvalidInputError: a text is empty, too long or has no mask, a target is not one token, `top_k` is out of range, or the
            results would be too large.
    """
    k = check_range("top_k", DEFAULT_TOP_K if top_k is None else top_k, 1, MAX_TOP_K)
    ids = (yield from _target_ids(model.tokenizer, targets)) if targets else None
    candidates = k if ids is None else min(k, len(ids))
    limits = replace(model.limits, result_bytes=min(model.limits.result_bytes, MAX_ANSWER_BYTES))
    items: list[Item] = []
    spans: list[list[Span]] = []
    masks = size = 0

    def read(encoding: Encoding) -> None:
        nonlocal masks, size
        index = len(items)
        row = _row(encoding, index, model.tokenizer, model.manifest, k, ids)
        items.append(Item(row, len(row.ids)))
        spans.append(_spans(texts[index], index, len(row.places), model.tokenizer.mask))
        masks += len(row.places)
        # Each candidate has the whole text; a mask has the probabilities of all targets, too.
        ranked = 0 if ids is None else NUMBER_BYTES * len(ids)
        size += len(row.places) * (candidates * (len(texts[index].encode()) + CANDIDATE_BYTES) + ranked)
        what = f"{masks:,} masks x {candidates:,} candidates with the whole text"
        check_results("top_k", size, what, limits, "lower top_k, or send fewer texts or targets")

    yield from model.tokenizer.encode_masked(texts, read, most=model.limits.waiting_tokens)

    def results() -> Iterator[FilledText]:
        for item, text, places in zip(items, texts, spans, strict=True):
            yield FilledText(_masks(item, text, places, model.tokenizer), item.size)

    return Work(items, results, size // COPIED)


def _row(
    encoding: Encoding, index: int, tokenizer: BertTokenizer, manifest: TextManifest, k: int, targets: Ids | None
) -> TextRow:
    row = make_row(encoding, (SCORES, TOKENS) if targets is None else (LOG_PROBABILITIES,))
    (row.places,) = (row.ids == manifest.tokens.mask).nonzero()
    if not len(row.places):
        raise InvalidInputError(CONTENTS.whole(index), f"there is no {tokenizer.mask} to fill")
    row.k, row.targets = k, targets
    return row


def _target_ids(tokenizer: BertTokenizer, targets: Sequence[str]) -> Steps[Ids]:
    """Return the id of each target, without duplicates."""
    ids: dict[int, None] = {}
    for index, word in enumerate(targets):
        ids[token_of(tokenizer, f"targets[{index}]", "target", word)] = None
        if index % TARGETS_TOGETHER == 0:
            yield
    return np.array(list(ids), np.int64)


def token_of(tokenizer: BertTokenizer, field: str, what: str, word: str) -> int:
    """Return the id of a word; `what` it is called in errors. Raises InvalidInputError if the word is not one token."""
    if not word.strip():
        raise InvalidInputError(field, f"the {what} is empty")
    if len(word) > LONGEST_TARGET:
        raise InvalidInputError(field, f"{len(word):,} characters are too long for one token, at most {LONGEST_TARGET} can be")
    if not is_unicode(word):
        raise InvalidInputError(field, f"the {what} is not Unicode, it has a lone surrogate")
    ids = tokenizer.pieces(word)
    if len(ids) != 1 and tokenizer.spaced:  # where tokens include the space before their word, callers easily forget it
        spaced = tokenizer.pieces(f" {word}")
        ids = spaced if len(spaced) == 1 else ids
    if len(ids) != 1:
        pieces = " ".join(map(tokenizer.token, ids[:10]))
        raise InvalidInputError(field, f"{word!r} is {len(ids):,} tokens of the model ({pieces}), a {what} must be one")
    if ids[0] == tokenizer.unknown and word != tokenizer.token(ids[0]):
        raise InvalidInputError(field, f"{word!r} is not in the model's vocabulary")
    return ids[0]


def _spans(text: str, index: int, masks: int, mask: str) -> list[Span]:
    """Return the position of each mask in the text: tokens' offsets would take a fifth of all time for the text."""
    spans = [found.span() for found in re.finditer(re.escape(mask), text)]
    if len(spans) != masks:  # by tokenizers that normalize a mask in wide letters, or have longer tokens with the mask in them
        raise InvalidInputError(
            CONTENTS.whole(index), f"the model finds {masks:,} masks, but {mask} occurs {len(spans):,} times"
        )
    return spans


def _masks(item: Item, text: str, spans: Sequence[Span], tokenizer: BertTokenizer) -> tuple[FilledMask, ...]:
    scores, tokens = _ranked(item)
    return tuple(
        FilledMask(tuple(_candidates(tokenizer, text[:start], text[end:], row_scores, row_tokens)))
        for (start, end), row_scores, row_tokens in zip(spans, scores.tolist(), tokens.tolist(), strict=True)
    )


def _ranked(item: Item) -> tuple[Array, Array]:
    """Return probabilities and ids, [masks, candidates], best first."""
    row: TextRow = item.payload
    if row.targets is None:
        return item.result[SCORES], item.result[TOKENS]
    scores = np.exp(item.result[LOG_PROBABILITIES])
    order = np.argsort(-scores, axis=1, kind="stable")[:, : row.k]
    return np.take_along_axis(scores, order, axis=1), row.targets[order]


def _candidates(
    tokenizer: BertTokenizer, before: str, after: str, scores: Sequence[float], tokens: Sequence[int]
) -> Iterator[MaskCandidate]:
    """Put each token between the texts before and after the mask."""
    bare = before.rstrip()
    for score, token in zip(scores, tokens, strict=True):
        piece, strips = tokenizer.joining(token)
        start = bare if strips else before
        if not start or start[-1].isspace():
            piece = piece.removeprefix(" ")
        yield MaskCandidate(score, token, tokenizer.piece(token), f"{start}{piece}{after}")


FILL_MASK_TASK = TextTask(FILL_MASK, "fills masks", prepare_fill_mask, lambda model, text: f"{text} {model.tokenizer.mask}")
