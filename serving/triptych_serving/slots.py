"""Rows that one graph steps together: slots over static buffers, the active ones always a dense prefix.

Memory is allocated once: `4 * 2L * slots * H * D * (max_target + max_source)` bytes; pages are touched only as rows reach them.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from triptych_serving.manifest import TranslationManifest
from triptych_serving.padding import stack_rows
from triptych_serving.session import Array, Binding, Session

FREE = -1  # in `forced`: nothing is
MAX_BINDINGS = 1_024  # kept; making one anew costs 0.2 ms


@dataclass(frozen=True)
class Bound:
    """Arrays by the names of a graph's inputs and outputs."""

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]


class Slots:
    """Caches, encoded sources and per-row inputs of one step graph.

    Args:
        encoder: graph `source, lengths -> memory`.
        step: graph with at least `tokens, positions, last, forced, caches, memories -> caches`.
        manifest: shapes, limits and special tokens.
        count: the most rows at once.
    """

    def __init__(self, encoder: Session, step: Session, manifest: TranslationManifest, count: int) -> None:
        self._encoder, self._step = encoder, step
        self._special = manifest.tokens
        shape, limits = manifest.decoder, manifest.limits
        self.count = count
        self.used = 0
        self._names = [f"{kind}_{layer}" for layer in range(shape.layers) for kind in ("key", "value")]
        self.cache, self.memory = (
            np.zeros((len(self._names), count, shape.heads, max(2, length), shape.head_dim), np.float32)
            for length in (limits.max_target_tokens, limits.max_source_tokens)
        )
        self.tokens = np.zeros(count, np.int64)  # each row's newest
        self.positions = np.zeros(count, np.int32)  # where it stands
        self.last = np.zeros(count, np.int32)  # index of the last source token
        self.forced = np.full(count, FREE, np.int64)
        self._bindings: dict[Hashable, Binding] = {}

    @property
    def bytes(self) -> int:
        """Memory of the caches, in bytes."""
        return self.cache.nbytes + self.memory.nbytes

    def warm_up(self) -> None:
        """Run the encoder once, so that the first request finds it ready."""
        self._encoder.run({"source": np.full((1, 1), self._special.end), "lengths": np.ones(1, np.int32)})

    def encode(self, sources: Sequence[Sequence[int]]) -> range:
        """Encode sources together and give each the next slot; returns their slots."""
        lengths = np.array([len(source) for source in sources], np.int32)
        padded = stack_rows(sources, self._special.pad, np.int64)
        [memory] = self._encoder.run({"source": padded, "lengths": lengths})  # [2L, B, H, S, D]
        first = self.used
        self.used += len(sources)
        new = slice(first, self.used)
        self.memory[:, new, :, : padded.shape[1]] = memory
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

    def run(self, key: Hashable, arrays: Callable[[], Bound]) -> None:
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

    def _bind(self, more: Bound) -> Binding:
        rows = self.used
        caches = {name: buffer[:rows] for name, buffer in zip(self._names, self.cache, strict=True)}
        memories = {name: buffer[:rows] for name, buffer in zip(self._names, self.memory, strict=True)}
        own: dict[str, Array] = {"tokens": self.tokens, "positions": self.positions, "last": self.last, "forced": self.forced}
        inputs = {
            **{name: self._active(array) for name, array in {**own, **more.inputs}.items()},
            **{f"cache_{name}": array for name, array in caches.items()},
            **{f"memory_{name}": array for name, array in memories.items()},
        }
        outputs = {
            **{name: self._active(array) for name, array in more.outputs.items()},
            **{f"present_{name}": array for name, array in caches.items()},
        }
        return self._step.bind(inputs, outputs)

    def _active(self, array: Array) -> Array:
        return array[: self.used] if len(array) == self.count else array

    def _copy(self, source: int, target: int, cached: int) -> None:
        """Only as much of the row as is in use."""
        length = int(self.last[source]) + 1
        self.cache[:, target, :, :cached] = self.cache[:, source, :, :cached]
        self.memory[:, target, :, :length] = self.memory[:, source, :, :length]
        for vector in (self.tokens, self.positions, self.last, self.forced):
            vector[target] = vector[source]
