"""Rows that one graph steps together: slots over static buffers, the active ones always a dense prefix."""

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.decoding.kv_cache import BoundStep, KVCache, StepArrays
from triptych_serving.runtime.arrays import stack_rows
from triptych_serving.runtime.session import Array

FREE = -1  # in `forced`: nothing is
MAX_BINDINGS = 1_024  # kept; making one anew costs 0.2 ms


class Slots:
    """Caches, encoded sources and per-row inputs of one step graph.

    Args:
        caches: over the graph, which has at least `tokens, positions, last, forced` beside them.
        manifest: limits and special tokens.
    """

    def __init__(self, caches: KVCache, manifest: TranslationManifest) -> None:
        self.caches = caches
        self._special = manifest.tokens
        self.count = count = caches.count
        self.used = 0
        self.tokens = np.zeros(count, np.int64)  # each row's newest
        self.positions = np.zeros(count, np.int32)  # where it stands
        self.last = np.zeros(count, np.int32)  # index of the last source token
        self.forced = np.full(count, FREE, np.int64)
        self._bindings: dict[Hashable, BoundStep] = {}

    @property
    def bytes(self) -> int:
        """Memory of the caches, in bytes."""
        return self.caches.bytes

    def warm_up(self) -> None:
        """Run the encoder once, so that the first request finds it ready. No slot may be in use."""
        self.caches.encode(np.full((1, 1), self._special.end), np.ones(1, np.int32), 0)

    def encode(self, sources: Sequence[Sequence[int]]) -> range:
        """Encode sources together and give each the next slot; returns their slots."""
        lengths = np.array([len(source) for source in sources], np.int32)
        first = self.used
        self.caches.encode(stack_rows(sources, self._special.pad, np.int64), lengths, first)
        self.used += len(sources)
        new = slice(first, self.used)
        self.tokens[new] = self._special.start
        self.positions[new] = 0
        self.last[new] = lengths - 1
        self.forced[new] = FREE
        return range(first, self.used)

    def vacate(self, slot: int) -> int:
        """Fill `slot` with the last row; returns where that row stood."""
        self.used -= 1
        if slot != self.used:
            self._copy(self.used, slot, int(self.positions[self.used]))
        return self.used

    def run(self, key: Hashable, arrays: Callable[[], StepArrays]) -> None:
        """Run the graph over the rows in use, with more inputs and outputs than the slots' own.

        Args:
            key: stands for the arrays: with an equal key they must be the same ones.
            arrays: says which, when they are bound: `[count, ...]`, of which the rows in use are taken, or of another length
                and taken as they are.

        Raises:
            EngineError: the runtime failed.
        """
        place = (self.used, key)
        binding = self._bindings.get(place)
        if binding is None:
            if len(self._bindings) >= MAX_BINDINGS:
                del self._bindings[next(iter(self._bindings))]  # the oldest
            binding = self._bindings[place] = self._bind(arrays())
        binding.run()

    def _bind(self, more: StepArrays) -> BoundStep:
        own: dict[str, Array] = {"tokens": self.tokens, "positions": self.positions, "last": self.last, "forced": self.forced}
        return self.caches.bind(StepArrays({**own, **more.inputs}, more.outputs, more.constants, more.rare), self.used)

    def _copy(self, source: int, target: int, cached: int) -> None:
        """Only as much of the row as is in use."""
        self.caches.copy(source, target, slice(0, cached), int(self.last[source]) + 1)
        for vector in (self.tokens, self.positions, self.last, self.forced):
            vector[target] = vector[source]
