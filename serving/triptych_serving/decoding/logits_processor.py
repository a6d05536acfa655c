"""Penalties and bans of one row, as a few edits of the next token's logits that the graph applies."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from triptych_serving.bundle.manifest import SpecialTokens
from triptych_serving.bundle.search_params import SearchParams, SearchRules
from triptych_serving.text.vocabulary import Pattern, Vocabulary

BAN = -1e9  # added to a logit: its probability becomes 0, yet sums stay finite

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LogitEdits:
    """Edits of one row: value x of a token becomes `(x * factor if x < 0 else x / factor) + offset`. All `[E]`; tokens differ.

    The bundle's graph defines x. Usually it is the logit, and the softmax follows. By the rules of transformers it is the
    log-probability, or where the factor is negative the logit, with the factor's absolute value; no softmax follows.
    """

    tokens: Ints
    factors: Floats
    offsets: Floats


class LogitsProcessor:
    """Computes the edits of one row from its tokens so far. Stateless: its hypotheses share it.

    By the rules of transformers the start token counts as a token that has occurred, and penalties apply to log-probabilities
    in a beam search, else to logits.

    Args:
        search: the row's options.
        tokens: ids of the special tokens.
        vocabulary: bytes of each token.
        forced: number of tokens at the start of every translation that belong to the model's frame, not to the text.
    """

    def __init__(self, search: SearchParams, tokens: SpecialTokens, vocabulary: Vocabulary, forced: int = 0) -> None:
        transformers = search.rules is SearchRules.TRANSFORMERS
        self._start = np.array([tokens.start] if transformers else [], np.int64)
        self._sign = -1 if transformers and search.beam_size == 1 else 1
        self._penalty = search.repetition_penalty
        self._run = search.no_repeat_ngram_size
        self._min_length = len(self._start) + search.min_length
        self._hidden = len(self._start) + forced
        self._end = tokens.end
        self._vocabulary = vocabulary
        patterns = [vocabulary.pattern(text) for text in search.suppressed if text]
        self._within = _union(pattern.within for pattern in patterns)
        self._within_first = _union(pattern.within_first for pattern in patterns)
        self._after = _completions(patterns)
        self._heads = sorted({len(head) for head in self._after})
        self._banned_always = single_tokens(search.suppressed_tokens)
        self._runs = [(run[:-1], run[-1]) for run in search.suppressed_tokens if len(run) > 1]

    def edits(self, history: Ints) -> LogitEdits:
        """Return the edits for the next token.

        The repetition penalty is that of Keskar et al. 2019, section 4.1: applied once to each token that has occurred.

        Args:
            history: `[T]` all tokens so far, a prefix included, without the start token.
        """
        if len(self._start):
            history = np.concatenate((self._start, history))
        tokens: list[int] = history.tolist()
        banned = self._banned(tokens, history)
        penalized = set(tokens) - banned if self._penalty != 1 else set()
        return _make_edits(penalized, banned, self._sign * self._penalty)

    def _banned(self, tokens: list[int], history: Ints) -> set[int]:
        banned = set(_repeats(tokens, history, self._run)) if self._run else set()
        banned |= self._banned_always
        banned.update(last for head, last in self._runs if tuple(tokens[-len(head) :]) == head)
        if len(tokens) < self._min_length:
            banned.add(self._end)
        if self._within or self._after:
            self._suppress(tokens[self._hidden :], banned)
        return banned

    def _suppress(self, tokens: list[int], banned: set[int]) -> None:
        # One byte more than is compared, so that the stripped space at the start of a translation is never compared.
        tail = self._vocabulary.tail(tokens, 1 + max(self._heads, default=0))
        if tail is None:
            banned |= self._within_first
            return
        banned |= self._within
        for size in self._heads:
            if ids := self._after.get(tail[-size:]):
                banned |= ids


def ban(tokens: Iterable[int]) -> LogitEdits:
    """Return edits that ban tokens."""
    return _make_edits((), set(tokens), 1.0)


def single_tokens(runs: Iterable[Sequence[int]]) -> frozenset[int]:
    """Return the tokens of runs that are one token long."""
    return frozenset(run[0] for run in runs if len(run) == 1)


def merge(edits: Sequence[LogitEdits | None]) -> tuple[Ints, Floats, Floats]:
    """Stack the edits of all rows: tokens, factors and offsets, each `[B, E]`, E a power of two.

    A row is padded with its own first edit, or without any with an edit of token 0 that changes nothing.
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


def _make_edits(penalized: Iterable[int], banned: set[int], penalty: float) -> LogitEdits:
    tokens = np.array([*banned, *penalized], np.int64)
    factors, offsets = np.full(len(tokens), penalty, np.float32), np.zeros(len(tokens), np.float32)
    factors[: len(banned)], offsets[: len(banned)] = 1.0, BAN
    return LogitEdits(tokens, factors, offsets)


def _repeats(tokens: list[int], history: Ints, size: int) -> list[int]:
    """Return the tokens that would repeat a run of `size` tokens."""
    if size == 1:
        return tokens
    if len(tokens) < size:
        return []
    last = tokens[1 - size :]
    # An earlier occurrence must end with the run's last known token.
    ends = np.flatnonzero(history[size - 2 : -1] == history[-1]).tolist()
    return [tokens[start + size - 1] for start in ends if tokens[start : start + size - 1] == last]


def _union(parts: Iterable[Ints]) -> frozenset[int]:
    return frozenset(token for part in parts for token in part.tolist())


def _completions(patterns: Iterable[Pattern]) -> dict[bytes, frozenset[int]]:
    """Map beginnings of suppressed texts to the tokens that would complete one."""
    after: dict[bytes, list[Ints]] = {}
    for pattern in patterns:
        for head, ids in pattern.after:
            after.setdefault(head, []).append(ids)
    return {head: _union(ids) for head, ids in after.items()}
