"""Penalties and bans of one row, as a few edits of the next token's logits that the graph applies."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triptych_serving.bundle.manifest import SpecialTokens
from triptych_serving.bundle.search_params import SearchParams, SearchRules
from triptych_serving.scheduling.request import Row
from triptych_serving.text.vocabulary import Pattern, Vocabulary

BAN = -1e9  # added to a logit: its probability becomes 0, yet sums stay finite

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LogitEdits:
    """Edits of one row: value x of a token becomes `(x * factor if x < 0 else x / factor) + offset`. All `[E]`.

    A token may occur again with the same edit.

    The bundle's graph defines x. Usually it is the logit, and the softmax follows. By the rules of transformers it is the
    log-probability, or where the factor is negative the logit, with the factor's absolute value; no softmax follows.
    """

    tokens: Ints
    factors: Floats
    offsets: Floats


class LogitsProcessor:
    """Computes the edits of a request's rows from their tokens so far. All rows and hypotheses share it.

    Tokens that are always banned are in arrays that are made once; a step adds only what depends on the last tokens.
    By the rules of transformers the start token counts as a token that has occurred, and penalties apply to log-probabilities
    in a beam search, else to logits.

    Args:
        vocabulary: bytes of each token.
        forced: number of tokens at the start of every translation that belong to the model's frame, not to the text.
        begins: no text precedes the first token, so the space that some vocabularies put before the first word is dropped.

    Attributes:
        is_fixed: edits depend on the number of tokens alone.
    """

    def __init__(
        self, search: SearchParams, tokens: SpecialTokens, vocabulary: Vocabulary, forced: int = 0, begins: bool = True
    ) -> None:
        transformers = search.rules is SearchRules.TRANSFORMERS
        self._start = np.array([tokens.start] if transformers and tokens.start >= 0 else [], np.int64)
        self._sign = -1 if transformers and search.beam_size == 1 else 1
        self._penalty, self._repeated = self._sign * search.repetition_penalty, search.repetition_penalty != 1
        self._biased_tokens = np.array([token for token, _ in search.logit_bias], np.int64)  # sorted
        self._biases = np.array([value for _, value in search.logit_bias], np.float32)
        self._presence, self._frequency = search.presence_penalty, search.frequency_penalty
        self._penalizes = search.penalizes
        self._run = search.no_repeat_ngram_size
        self._min_length = len(self._start) + search.min_length
        self._hidden = len(self._start) + forced
        self._vocabulary, self._strips = vocabulary, begins and vocabulary.strips
        patterns = [vocabulary.pattern(text) for text in search.suppressed if text]
        self._suppresses = bool(patterns)
        self._after = _completions(patterns)
        self._heads = sorted({len(head) for head in self._after}, reverse=True)
        # By the keys of `_always` and the longest head; then with the biases, too.
        self._bans: dict[tuple[bool, bool, bytes], LogitEdits] = {}
        self._biased_bans: dict[tuple[bool, bool, bytes], LogitEdits] = {}
        # One byte more than is compared, so that the stripped space at the start of a translation is never compared.
        self._tail = 1 + max(self._heads, default=0)
        self._runs = [(run[:-1], run[-1]) for run in search.suppressed_tokens if len(run) > 1]
        always = np.array([*single_tokens(search.suppressed_tokens)], np.int64)
        within, first = always, always
        if patterns:
            within = np.unique(np.concatenate([always, *(pattern.within for pattern in patterns)]))
            starts = [pattern.within_first if self._strips else pattern.within for pattern in patterns]
            first = np.unique(np.concatenate([always, *starts]))
        self.is_fixed = not (patterns or self._runs or self._run or self._penalizes)
        ends = np.array([*tokens.ends], np.int64)
        # Tokens that are always banned, by whether the translation is empty, and whether it is too short to end.
        self._always: dict[tuple[bool, bool], tuple[LogitEdits, frozenset[int]]] = {}
        for empty, ids in ((False, within), (True, first))[: 1 + bool(patterns)]:
            for short in (False, True)[: 1 + bool(search.min_length)]:
                bans = np.append(ids, ends) if short else ids
                self._always[empty, short] = ban(bans), frozenset(bans.tolist()) if self._penalizes else frozenset()

    def edits(self, history: Ints) -> LogitEdits:
        """Return the edits for the next token: the same object where only the same texts are suppressed.

        The repetition penalty is that of Keskar et al. 2019, section 4.1: applied once to each token that has occurred. The
        penalties of presence and frequency are those of OpenAI's API, and count the text's own tokens alone.

        Args:
            history: `[T]` all tokens so far, a prefix included, without the start token.
        """
        if self.is_fixed:
            key = False, len(self._start) + len(history) < self._min_length
            return self._biased_always((*key, b""), self._always[key][0])
        if len(self._start):
            history = np.concatenate((self._start, history))
        tokens: list[int] = history.tolist()
        tail = self._vocabulary.tail(tokens[self._hidden :], self._tail, self._strips) if self._suppresses else b""
        key = tail is None, len(tokens) < self._min_length
        always, banned = self._always[key]
        head = self._longest_head(tail) if tail else b""
        last = [last for head, last in self._runs if tuple(tokens[-len(head) :]) == head]
        if self._run:  # tokens that would complete a run of tokens again
            last += _repeats(tokens, history, self._run)
        bans = self._bans_after(key, head) if head else always
        counts = Counter(tokens[self._hidden :]) if self._presence or self._frequency else Counter[int]()
        seen = set(tokens) if self._repeated else counts.keys()
        penalized = seen - banned - {*last, *(bans.tokens.tolist() if head else ())} if self._penalizes else ()
        if not (last or penalized):
            return self._biased_always((*key, head), bans)
        ids = np.concatenate((bans.tokens, np.array([*last, *penalized], np.int64)))
        if not penalized:
            return self._biased(ban(ids))
        factors, offsets = np.full(len(ids), self._penalty, np.float32), np.zeros(len(ids), np.float32)
        factors[: -len(penalized)], offsets[: -len(penalized)] = 1, BAN
        if counts:
            offsets[-len(penalized) :] = [self._offset(counts[token]) for token in penalized]
        return self._biased(LogitEdits(ids, factors, offsets))

    def _biased_always(self, key: tuple[bool, bool, bytes], bans: LogitEdits) -> LogitEdits:
        """Add the request's biases to bans, once for each `key`: there may be as many bans as tokens."""
        if key not in self._biased_bans:
            self._biased_bans[key] = self._biased(bans)
        return self._biased_bans[key]

    def _biased(self, edits: LogitEdits) -> LogitEdits:
        """Add the request's biases to bans and penalties."""
        tokens, values = self._biased_tokens, self._biases
        if not len(tokens):
            return edits
        known, new = np.isin(edits.tokens, tokens), ~np.isin(tokens, edits.tokens)
        offsets = edits.offsets.copy()
        offsets[known] += values[np.searchsorted(tokens, edits.tokens[known])]
        factors = np.append(edits.factors, np.full(np.count_nonzero(new), self._sign, np.float32))
        return LogitEdits(np.append(edits.tokens, tokens[new]), factors, np.append(offsets, values[new]))

    def _offset(self, count: int) -> float:
        """Return what is added to the logit of a token that has occurred so often."""
        return -(self._presence + self._frequency * count) if count else 0.0

    def _longest_head(self, tail: bytes) -> bytes:
        """Return the longest beginning of a suppressed text with which a translation ends."""
        for size in self._heads:
            if (head := tail[-size:]) in self._after:
                return head
        return b""

    def _bans_after(self, key: tuple[bool, bool], head: bytes) -> LogitEdits:
        """Return the bans of a translation that ends with `head`, and so with every beginning that `head` ends with."""
        known = self._bans.get((*key, head))
        if known is None:
            ends = [ids for size in range(1, len(head) + 1) if (ids := self._after.get(head[-size:])) is not None]
            known = self._bans[*key, head] = ban(np.concatenate([self._always[key][0].tokens, *ends]))
        return known


def ban(tokens: Ints) -> LogitEdits:
    """Return edits that ban tokens."""
    factors, offsets = _of_bans(1 << len(tokens).bit_length())
    return LogitEdits(tokens, factors[: len(tokens)], offsets[: len(tokens)])


@lru_cache(maxsize=32)
def _of_bans(count: int) -> tuple[Floats, Floats]:
    """Return factors and offsets of bans, which are the same for all of them."""
    return np.ones(count, np.float32), np.full(count, BAN, np.float32)


def make_processor(row: Row, tokens: SpecialTokens, vocabulary: Vocabulary, begins: bool = True) -> LogitsProcessor | None:
    """Return the processor of a row, and of all rows of its request; None if its options need none."""
    return LogitsProcessor(row.search, tokens, vocabulary, row.frame.forced, begins) if row.search.constrained else None


def single_tokens(runs: Iterable[Sequence[int]]) -> frozenset[int]:
    """Return the tokens of runs that are one token long."""
    return frozenset(run[0] for run in runs if len(run) == 1)


def width_of(edits: Sequence[LogitEdits | None]) -> int:
    """Return the number of edits per row when all rows have as many: a power of two."""
    widest = max((len(edit.tokens) for edit in edits if edit is not None), default=0)
    return 1 << max(0, widest - 1).bit_length()


class EditArrays:
    """The edits of all rows, as inputs of a graph `[B, E]`.

    A row is padded with its own first edit, or without any with an edit of token 0 that changes nothing.
    """

    def __init__(self, rows: int, width: int) -> None:
        self.tokens = np.zeros((rows, width), np.int64)
        self.factors, self.offsets = np.ones((rows, width), np.float32), np.zeros((rows, width), np.float32)
        self._written: list[LogitEdits | None] = [None] * rows  # what each row has; most rows' edits are those of the last step

    @property
    def inputs(self) -> Mapping[str, NDArray[Any]]:
        """The arrays by the names of the graph's inputs."""
        return {"edit_tokens": self.tokens, "edit_factors": self.factors, "edit_offsets": self.offsets}

    def write(self, edits: Sequence[LogitEdits | None]) -> None:
        """Write the edits of the first rows."""
        for row, (edit, written) in enumerate(zip(edits, self._written, strict=False)):
            if edit is written:
                continue
            self._written[row] = edit
            count = 0 if edit is None else len(edit.tokens)
            if edit is None or not count:
                self.tokens[row], self.factors[row], self.offsets[row] = 0, 1, 0
                continue
            for array, values in ((self.tokens, edit.tokens), (self.factors, edit.factors), (self.offsets, edit.offsets)):
                array[row, :count] = values
                array[row, count:] = values[0]


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


def _completions(patterns: Iterable[Pattern]) -> dict[bytes, Ints]:
    """Map beginnings of suppressed texts to the tokens that would complete one."""
    after: dict[bytes, list[Ints]] = {}
    for pattern in patterns:
        for head, ids in pattern.after:
            after.setdefault(head, []).append(ids)
    return {head: ids[0] if len(ids) == 1 else np.unique(np.concatenate(ids)) for head, ids in after.items()}
