"""Slots of a lane on the host: per-row arrays beside the caches. The slots in use are always the first ones."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from triptych_serving.bundle.manifest import Generation, Limits, SpecialTokens
from triptych_serving.decoding.beams import BeamStep
from triptych_serving.decoding.hypotheses import Continuation, HypothesisGroup, Ranked
from triptych_serving.decoding.kv_cache import KVCache, RunStep, StepArrays
from triptych_serving.decoding.logits_processor import EditArrays, LogitEdits, ban, single_tokens, width_of
from triptych_serving.decoding.vocab_subset import SMALLEST, VocabSubset
from triptych_serving.runtime.arrays import sparse_zeros, stack_rows
from triptych_serving.runtime.session import Array

FREE = -1  # in `forced`: the graph chooses the token
MAX_BINDINGS = 1_024  # cached; making one again costs 0.2 ms


class DecoderSpec(Protocol):
    """The part of a manifest that slots need."""

    @property
    def tokens(self) -> SpecialTokens:
        """Ids of the special tokens; without a start, the source of a row is the token that starts it."""

    @property
    def limits(self) -> Limits: ...

    @property
    def generation(self) -> Generation: ...


class Slots:
    """Caches, encoded sources and per-row inputs of a step graph.

    Args:
        cache: over the graph, which has at least the inputs `tokens, positions, last, forced` beside the caches.
        subset: part of the output projection, if the graph takes it as an input.
    """

    def __init__(self, cache: KVCache, manifest: DecoderSpec, subset: VocabSubset | None = None) -> None:
        self.cache, self.subset = cache, subset
        self._special = manifest.tokens
        self.count = count = cache.count
        self.used = 0
        self.tokens = np.zeros(count, np.int64)  # newest token of each row
        self.positions = np.zeros(count, np.int32)  # of that token
        self.last = np.zeros(count, np.int32)  # index of the last source token
        self.forced = np.full(count, FREE, np.int64)
        # The same memory: after a step has filled the processor's caches with weights, one operation of numpy takes 10 us.
        self.token_view, self.position_view = self.tokens.data, self.positions.data
        self.last_view, self.forced_view = self.last.data, self.forced.data
        self._bindings: dict[Hashable, RunStep] = {}

    @property
    def bytes(self) -> int:
        """Bytes of the caches."""
        return self.cache.bytes

    def warm_up(self) -> None:
        """Run the encoder once, so that the first request finds it ready. No slot may be in use."""
        self.cache.encode(np.full((1, 1), self._special.end), np.ones(1, np.int32), 0)

    def encode(self, sources: Sequence[Sequence[int]]) -> range:
        """Encode sources together, in the next slots; return these."""
        lengths = np.array([len(source) for source in sources], np.int32)
        self.cache.encode(stack_rows(sources, self._special.pad, np.int64), lengths, self.used)
        return self._begin(sources)

    def repeat(self, source: Sequence[int], slot: int) -> int:
        """Begin another row with the source that the row in `slot` has, in the next slot; return this."""
        self.cache.copy(slot, self.used, slice(0, 0), len(source))
        [target] = self._begin([source])
        return target

    def _begin(self, sources: Sequence[Sequence[int]]) -> range:
        """Begin encoded rows in the next slots."""
        new = range(self.used, self.used + len(sources))
        self.used += len(sources)
        for slot, source in zip(new, sources, strict=True):
            self.token_view[slot] = self._special.start if self._special.start >= 0 else source[0]
            self.position_view[slot] = 0
            self.last_view[slot] = len(source) - 1
            self.forced_view[slot] = FREE
        return new

    def vacate(self, slot: int) -> int:
        """Free a slot by moving the row of the last slot into it; return the last slot, which is now unused."""
        self.used -= 1
        if slot != self.used:
            self._copy(self.used, slot, int(self.positions[self.used]))
        return self.used

    def advance(self, rows: int) -> None:
        """Count a token of each of the first rows."""
        positions = self.position_view
        for slot in range(rows):
            positions[slot] += 1

    def run(self, key: Hashable, arrays: Callable[[], StepArrays]) -> None:
        """Run the graph over the slots in use, with more inputs and outputs than the slots' own.

        Args:
            key: identifies the arrays: with an equal key they must be the same ones.
            arrays: returns them, when the graph is bound.

        Raises:
            EngineError: the runtime failed.
        """
        bound = (self.used, key)
        run = self._bindings.get(bound)
        if run is None:
            if len(self._bindings) >= MAX_BINDINGS:
                del self._bindings[next(iter(self._bindings))]  # the oldest
            run = self._bindings[bound] = self._bind(arrays())
        run()

    def _bind(self, more: StepArrays) -> RunStep:
        own: dict[str, Array] = {"tokens": self.tokens, "positions": self.positions, "last": self.last, "forced": self.forced}
        return self.cache.bind(replace(more, inputs={**own, **more.inputs}), self.used)

    def _copy(self, source: int, target: int, cached: int) -> None:
        """Copy the used part of a row, `cached` positions, to another slot."""
        self.cache.copy(source, target, slice(0, cached), int(self.last[source]) + 1)
        for vector in (self.tokens, self.positions, self.last, self.forced):
            vector[target] = vector[source]


class SearchSlots(Slots):
    """Slots of hypotheses over the search graph, with their scores and history.

    Args:
        vocabulary_size: width of the graph's `log_probabilities`; ignored with `subset`, whose graph has no such output.
    """

    def __init__(self, cache: KVCache, manifest: DecoderSpec, vocabulary_size: int, subset: VocabSubset | None = None) -> None:
        super().__init__(cache, manifest, subset)
        count = self.count
        targets, sources = manifest.limits.max_target_tokens, max(2, manifest.limits.max_source_tokens)
        self.vocabulary_size = vocabulary_size if subset is None else SMALLEST
        self.so_far = np.zeros(count, np.float64)  # log-probability of each hypothesis
        self.history = np.zeros((count, targets), np.int64)
        self.ends = np.array([*self._special.ends], np.int64)
        self.attended = sparse_zeros((count, targets, sources), np.float32)  # by target token, for rows with `attends`
        # Outputs of the step; the first three after `cache.fetch`.
        self.forced_log_probabilities = cache.array((count, 1), np.float32)
        self.log_probabilities = np.zeros((count, self.vocabulary_size), np.float32)  # not with a subset
        self.attention = cache.array((count, sources), np.float32)
        self.best: Mapping[str, Array] = {}  # `top_log_probabilities` and `top_tokens` `[count, candidates]`
        self._steps: dict[int, tuple[Mapping[str, Array], BeamStep]] = {}
        self._edits: dict[int, EditArrays] = {}
        banned = single_tokens(manifest.generation.suppressed_tokens)
        self._bans = ban(np.array([*banned], np.int64)) if banned else None  # of every row, whatever its options
        self._no_edits = self._edit_arrays([self._bans] * count, {}).inputs

    def search(self, candidates: int, edits: Sequence[LogitEdits | None]) -> None:
        """Run the graph; results are in this object's arrays.

        Args:
            candidates: number of best tokens to return.
            edits: one for each slot in use, or none at all; where there are any, they contain the model's own bans.
        """
        if self._bans is not None and (edits or self.subset is not None):  # a subset's columns change places
            edits = [edit or self._bans for edit in edits or [None] * self.used]
        width = 0
        if edits:
            if self.subset is not None:
                edits = [edit and self.subset.translate(edit) for edit in edits]
            width = self._edit_arrays(edits, self._edits).tokens.shape[1]
        if candidates not in self._steps:
            shape = (self.count, candidates)
            top = {
                "top_log_probabilities": self.cache.array(shape, np.float32),
                "top_tokens": self.cache.array(shape, np.int64),
            }
            self._steps[candidates] = top, BeamStep(self, top)
        self.best, self._step = self._steps[candidates]
        columns = self.subset.size if self.subset else 0
        self.run((candidates, width, columns), lambda: self._arrays(candidates, width))

    def rank(self, groups: Sequence[HypothesisGroup]) -> Iterator[tuple[HypothesisGroup, Ranked]]:
        """Yield beam searches with the step's best continuations, except those that were extended already (see BeamStep)."""
        return self._step.rank(groups, self.cache.copy_rows)

    def append(self, continuations: Sequence[Continuation]) -> None:
        """Write each slot's newest token, and the log-probability with it."""
        tokens, so_far, history, positions = self.tokens, self.so_far, self.history, self.positions
        for continuation in continuations:  # a few rows at most: faster than four indexed assignments
            slot = continuation.slot
            tokens[slot] = history[slot, positions[slot]] = continuation.token
            so_far[slot] = continuation.log_probability

    def attend(self, slots: Sequence[int], length: int) -> None:
        """Store the step's attention of hypotheses of `length` tokens."""
        self.cache.fetch(self.attention)
        self.attended[slots, length] = self.attention[slots]

    def duplicate(self, source: int) -> int:
        """Copy a hypothesis to the next slot; return this."""
        target = self.used
        self.used += 1
        self._copy(source, target, int(self.positions[source]) + 1)
        return target

    def replace(self, source: int, target: int, attends: bool) -> None:
        """Overwrite `target`, another hypothesis of the same text, with `source`: only from where the two differ.

        `attends`: copy the stored attention too.
        """
        length = int(self.positions[source])
        parted = int((self.history[source, :length] != self.history[target, :length]).argmax())
        self.history[target, parted:length] = self.history[source, parted:length]
        if attends:
            self.attended[target, parted : length + 1] = self.attended[source, parted : length + 1]
        # Position 0 holds the start token, so equal tokens fill one position more.
        self.cache.copy(source, target, slice(parted + 1, length + 1))

    def _copy(self, source: int, target: int, cached: int) -> None:
        super()._copy(source, target, cached)
        self.so_far[target] = self.so_far[source]
        self.history[target, :cached] = self.history[source, :cached]
        length = int(self.last[source]) + 1
        self.attended[target, :cached, :length] = self.attended[source, :cached, :length]

    def _edit_arrays(self, edits: Sequence[LogitEdits | None], known: dict[int, EditArrays]) -> EditArrays:
        """Write edits into arrays `[count, E]`, the `known` ones of this width or new ones."""
        width = width_of(edits)
        if width not in known:
            known[width] = EditArrays(self.count, width)
        known[width].write(edits)
        return known[width]

    def _arrays(self, candidates: int, edits: int) -> StepArrays:
        constants = {"candidates": np.array([candidates]), **({} if edits else self._no_edits)}
        inputs = dict(self._edits[edits].inputs) if edits else {}
        rare = {"forced_log_probabilities": self.forced_log_probabilities, "attention": self.attention}
        if self.subset is not None:
            return StepArrays(inputs, self.best, constants, rare, self.subset.inputs)
        return StepArrays(inputs, self.best, constants, {**rare, "log_probabilities": self.log_probabilities})
