"""What a row's options make of the next token's logits: penalties and bans, as a few edits that a graph applies."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from triptych_serving.search import Search
from triptych_serving.vocabulary import Pattern, Vocabulary

__all__ = ["BAN", "Constraints", "Edits", "Vocabulary", "merge"]

BAN = -1e9  # added to a logit: its probability is 0, yet sums of it stay finite

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Edits:
    """Logit x of each token becomes `(x * factor if x < 0 else x / factor) + offset`. All `[E]`; tokens differ."""

    tokens: Ints
    factors: Floats
    offsets: Floats


class Constraints:
    """Constraints of one row; what they do depends on the tokens so far alone. Safe to share between its hypotheses.

    Args:
        search: the row's options.
        end: id of the end of the sentence.
        vocabulary: what tokens look like.
    """

    def __init__(self, search: Search, end: int, vocabulary: Vocabulary) -> None:
        self._penalty = search.repetition_penalty
        self._run = search.no_repeat_ngram_size
        self._min_length = search.min_length
        self._end = end
        self._vocabulary = vocabulary
        patterns = [vocabulary.pattern(text) for text in search.suppressed if text]
        self._within = _union(pattern.within for pattern in patterns)
        self._within_first = _union(pattern.within_first for pattern in patterns)
        self._after = _completions(patterns)
        self._heads = sorted({len(head) for head in self._after})

    def edits(self, history: Ints) -> Edits:
        """Edits for the token after `history` `[T]`, all tokens so far, a prefix included, without the start token.

        The repetition penalty is Keskar et al. 2019, section 4.1: once for each token that has occurred.
        """
        tokens: list[int] = history.tolist()
        banned = self._banned(tokens, history)
        penalized = set(tokens) - banned if self._penalty != 1 else set()
        return _make_edits(penalized, banned, self._penalty)

    def _banned(self, tokens: list[int], history: Ints) -> set[int]:
        banned = set(_repeats(tokens, history, self._run)) if self._run else set()
        if len(tokens) < self._min_length:
            banned.add(self._end)
        if self._within or self._after:
            self._suppress(tokens, banned)
        return banned

    def _suppress(self, tokens: list[int], banned: set[int]) -> None:
        # A byte more than is compared: with it, a space that is stripped as the translation's first is never one of those.
        tail = self._vocabulary.tail(tokens, 1 + max(self._heads, default=0))
        if tail is None:
            banned |= self._within_first
            return
        banned |= self._within
        for size in self._heads:
            if ids := self._after.get(tail[-size:]):
                banned |= ids


def merge(edits: Sequence[Edits | None]) -> tuple[Ints, Floats, Floats]:
    """Tokens, factors and offsets of all rows, each `[B, E]`, E a power of two.

    A row is filled up with its own first edit, or where it has none with one of token 0 that changes nothing.
    """
    widest = max((len(edit.tokens) for edit in edits if edit is not None), default=0)
    shape = len(edits), 1 << max(0, widest - 1).bit_length()
    tokens, factors, offsets = np.zeros(shape, np.int64), np.ones(shape, np.float32), np.zeros(shape, np.float32)
    for row, edit in enumerate(edits):
        if edit is not None and len(edit.tokens):
            for array, values in ((tokens, edit.tokens), (factors, edit.factors), (offsets, edit.offsets)):
                array[row] = values[0]
                array[row, : len(values)] = values
    return tokens, factors, offsets


def _make_edits(penalized: Iterable[int], banned: set[int], penalty: float) -> Edits:
    tokens = np.array([*banned, *penalized], np.int64)
    factors, offsets = np.full(len(tokens), penalty, np.float32), np.zeros(len(tokens), np.float32)
    factors[: len(banned)], offsets[: len(banned)] = 1.0, BAN
    return Edits(tokens, factors, offsets)


def _repeats(tokens: list[int], history: Ints, size: int) -> list[int]:
    """Tokens that would make a run of `size` occur again."""
    if size == 1:
        return tokens
    if len(tokens) < size:
        return []
    last = tokens[1 - size :]
    # Only where the run's last known token stands can it have occurred.
    ends = np.flatnonzero(history[size - 2 : -1] == history[-1]).tolist()
    return [tokens[start + size - 1] for start in ends if tokens[start : start + size - 1] == last]


def _union(parts: Iterable[Ints]) -> frozenset[int]:
    return frozenset(token for part in parts for token in part.tolist())


def _completions(patterns: Iterable[Pattern]) -> dict[bytes, frozenset[int]]:
    """Beginnings of texts, and the tokens that would complete one after each."""
    after: dict[bytes, list[Ints]] = {}
    for pattern in patterns:
        for head, ids in pattern.after:
            after.setdefault(head, []).append(ids)
    return {head: _union(ids) for head, ids in after.items()}
