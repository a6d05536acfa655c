"""Slots whose rows are hypotheses, with what a search must remember of each."""

from collections.abc import Mapping, Sequence

import numpy as np

from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.decoding.hypotheses import Continuation
from triptych_serving.decoding.kv_cache import KVCache, StepArrays
from triptych_serving.decoding.logits_processor import LogitEdits, ban, merge, single_tokens
from triptych_serving.decoding.slots import Slots
from triptych_serving.decoding.vocab_subset import SMALLEST, VocabSubset
from triptych_serving.runtime.session import Array

EDITS = ("edit_tokens", "edit_factors", "edit_offsets")


class SearchSlots(Slots):
    """Over the search graph.

    Args:
        caches: as for Slots.
        manifest: as for Slots.
        vocabulary_size: tokens that the graph's `log_probabilities` are of; of a short graph, which has none, it is not asked.
        columns: of the output projection, if the graph is a short one.
    """

    def __init__(
        self, caches: KVCache, manifest: TranslationManifest, vocabulary_size: int, columns: VocabSubset | None = None
    ) -> None:
        super().__init__(caches, manifest)
        count = self.count
        self.columns = columns
        targets, sources = manifest.limits.max_target_tokens, max(2, manifest.limits.max_source_tokens)
        self.vocabulary_size = vocabulary_size if columns is None else SMALLEST
        self.so_far = np.zeros(count, np.float64)  # log-probability of each hypothesis
        self.history = np.zeros((count, targets), np.int64)
        self.attended = np.zeros((count, targets, sources), np.float32)  # by target token, for those who ask
        # Of the step, once they are fetched:
        self.forced_log_probabilities = caches.array((count, 1), np.float32)
        self.log_probabilities = np.zeros((count, self.vocabulary_size), np.float32)  # only of all columns
        self.attention = caches.array((count, sources), np.float32)
        self.best: Mapping[str, Array] = {}  # of the step: `top_log_probabilities` and `top_tokens` `[count, candidates]`
        self._best: dict[int, Mapping[str, Array]] = {}
        self._edits: dict[int, Mapping[str, Array]] = {}
        banned = single_tokens(manifest.generation.suppressed_tokens)
        self._bans = ban(banned) if banned else None  # of every row, whatever its options
        self._no_edits: Mapping[str, Array] = dict(zip(EDITS, merge([self._bans] * count), strict=True))

    def search(self, candidates: int, edits: Sequence[LogitEdits | None]) -> None:
        """Run the graph; the answers are in this object's arrays.

        Args:
            candidates: how many of the best tokens are asked for.
            edits: one for each row in use, or none at all; where there are any, they have the model's own bans too.
        """
        if self._bans is not None and (edits or self.columns is not None):  # columns change their places
            edits = [edit or self._bans for edit in edits or [None] * self.used]
        width = self._fill_edits(edits) if edits else 0
        if candidates not in self._best:
            shape = (self.count, candidates)
            self._best[candidates] = {
                "top_log_probabilities": self.caches.array(shape, np.float32),
                "top_tokens": self.caches.array(shape, np.int64),
            }
        self.best = self._best[candidates]
        columns = self.columns.size if self.columns else 0
        self.run((candidates, width, columns), lambda: self._arrays(candidates, width))

    def continuations(self) -> tuple[list[list[float]], list[list[int]]]:
        """By slot: log-probabilities of the hypothesis with each of the step's best tokens, and these tokens."""
        used = self.used
        totals = self.so_far[:used, None] + self.best["top_log_probabilities"][:used]
        return totals.tolist(), self.best["top_tokens"][:used].tolist()

    def append(self, continuations: Sequence[Continuation]) -> None:
        """Each slot's newest token, and the log-probability with it."""
        tokens, so_far, history, positions = self.tokens, self.so_far, self.history, self.positions
        for continuation in continuations:  # a few rows at most: quicker than four indexed assignments
            slot = continuation.slot
            tokens[slot] = history[slot, positions[slot]] = continuation.token
            so_far[slot] = continuation.log_probability

    def attend(self, slots: Sequence[int], length: int) -> None:
        """Remember the step's attention of hypotheses of `length` tokens."""
        self.caches.fetch(self.attention)
        self.attended[slots, length] = self.attention[slots]

    def duplicate(self, source: int) -> int:
        """One row more for the text of `source`; returns its slot."""
        target = self.used
        self.used += 1
        self._copy(source, target, int(self.positions[source]) + 1)
        return target

    def fork(self, source: int, target: int, attends: bool) -> None:
        """`target`, another hypothesis of the same text, becomes a copy of `source`: from where the two part on.

        Args:
            source: slot.
            target: slot.
            attends: the text remembers its attention.
        """
        length = int(self.positions[source])
        parted = int((self.history[source, :length] != self.history[target, :length]).argmax())
        # Position 0 holds the start token, so equal tokens fill one position more.
        self.caches.copy(source, target, slice(parted + 1, length + 1))
        self.history[target, parted:length] = self.history[source, parted:length]
        if attends:
            self.attended[target, parted : length + 1] = self.attended[source, parted : length + 1]

    def _copy(self, source: int, target: int, cached: int) -> None:
        super()._copy(source, target, cached)
        self.so_far[target] = self.so_far[source]
        self.history[target, :cached] = self.history[source, :cached]
        length = int(self.last[source]) + 1
        self.attended[target, :cached, :length] = self.attended[source, :cached, :length]

    def _fill_edits(self, edits: Sequence[LogitEdits | None]) -> int:
        """Hand edits to the graph; returns how many a row has."""
        if self.columns is not None:
            edits = [edit and self.columns.translate(edit) for edit in edits]
        arrays: tuple[Array, ...] = merge(edits)
        width = int(arrays[0].shape[1])
        if width not in self._edits:
            self._edits[width] = {
                name: np.zeros((self.count, width), array.dtype) for name, array in zip(EDITS, arrays, strict=True)
            }
        for name, array in zip(EDITS, arrays, strict=True):
            self._edits[width][name][: self.used] = array
        return width

    def _arrays(self, candidates: int, edits: int) -> StepArrays:
        constants = {"candidates": np.array([candidates]), **({} if edits else self._no_edits)}
        inputs = dict(self._edits[edits]) if edits else {}
        rare = {"forced_log_probabilities": self.forced_log_probabilities, "attention": self.attention}
        if self.columns is None:
            rare["log_probabilities"] = self.log_probabilities
        else:
            inputs |= self.columns.inputs
        return StepArrays(inputs, self.best, constants, rare)
