"""Caches of 16 bits in a device's memory: rows stay there, and so does what the encoder makes of their sources."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from triptych_serving.bundle.manifest import DecoderShape, Limits, TranslationManifest
from triptych_serving.decoding.cuda.prefill import Prefill
from triptych_serving.decoding.kv_cache import cache_lengths, cache_names
from triptych_serving.runtime.cuda_graph_lock import CUDA_GRAPH_LOCK
from triptych_serving.runtime.memory import CacheRegion, DeviceArray, Memory
from triptych_serving.runtime.session import Array, Session

HALF = np.dtype(np.float16)
PADDING = 1e6  # times: a run of the encoder more takes longer than what it would spare; Prefill splits what is too much for one


class DeviceKVCache:
    """Of `count` rows: `2 * 2L * count * H * D * (max_target + max_source)` bytes. Used by one thread.

    Args:
        prefill: the encoder.
        step: graph with at least `caches, memories -> caches`.
        manifest: shapes and limits.
        count: the most rows at once.
        memory: of the graph's place.
    """

    def __init__(self, prefill: Prefill, step: Session, manifest: TranslationManifest, count: int, memory: Memory) -> None:
        self._prefill, self._memory = prefill, memory
        self.count = count
        self._names = cache_names(manifest.decoder.layers)
        self.positions, sources = cache_lengths(manifest.limits)
        shape = manifest.decoder
        pairs, heads, dim = memory_shape(step, shape)
        self.cache = memory.zeros((pairs, count, shape.heads, self.positions, shape.head_dim), HALF)
        self.encoded = memory.zeros((pairs, count, heads, sources, dim), HALF)

    @property
    def bytes(self) -> int:
        """Their memory."""
        return self.cache.nbytes + self.encoded.nbytes

    def encode(self, source: Array, lengths: Array, slots: Sequence[int]) -> None:
        """Run the encoder.

        Args:
            source: `[rows, longest]` ids, padded.
            lengths: `[rows]`.
            slots: `[rows]`, ascending: where each row goes.

        Raises:
            EngineError: the runtime failed.
        """
        for rows, encoded in self._prefill.encode(source, lengths):
            longest = slice(0, int(lengths[rows].max()))
            for start, stop, slot in stretches(slots[rows]):
                place = slice(slot, slot + stop - start)
                self._memory.copy(CacheRegion(encoded, slice(start, stop), longest), CacheRegion(self.encoded, place, longest))

    def copy(self, source: int, target: int, positions: slice, length: int = 0) -> None:
        """As Caches has it."""
        rows = slice(source, source + 1), slice(target, target + 1)
        for array, part in ((self.cache, positions), (self.encoded, slice(0, length))):
            if part.stop > part.start:
                self._memory.copy(CacheRegion(array, rows[0], part), CacheRegion(array, rows[1], part))

    def clear(self) -> None:
        """Zeros everywhere."""
        self._memory.fill(self.cache, 0)
        self._memory.fill(self.encoded, 0)

    def inputs(self, rows: int) -> Mapping[str, DeviceArray]:
        """The first rows' caches and memories, for the graph."""
        return {
            f"{kind}_{name}": array.at(index).first(rows)
            for kind, array in (("cache", self.cache), ("memory", self.encoded))
            for index, name in enumerate(self._names)
        }

    def outputs(self, rows: int) -> Mapping[str, DeviceArray]:
        """The same caches, which the graph writes in place."""
        return {f"present_{name}": self.cache.at(index).first(rows) for index, name in enumerate(self._names)}


def entered(memory: Memory) -> AbstractContextManager[None]:
    """Around many pieces of work on it: one lock for all, where each would take its own to keep clear of captures."""
    return CUDA_GRAPH_LOCK.running() if memory.device.kind == "cuda" else nullcontext()


def memory_shape(step: Session, shape: DecoderShape) -> tuple[int, int, int]:
    """2L, H and D of an encoder's output, as the step graph wants it: heads may lie side by side in one of `H * D`."""
    _, heads, _, dim = step.shape("memory_key_0")
    return 2 * shape.layers, int(heads or 0), int(dim or 0)


def bytes_for(shape: DecoderShape, limits: Limits, count: int) -> int:
    """Of the caches of so many rows, before there are any."""
    return HALF.itemsize * 2 * shape.layers * count * shape.heads * shape.head_dim * sum(cache_lengths(limits))


def stretches(slots: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Of ascending slots, those side by side: where a stretch starts and stops among them, and its first slot."""
    start = 0
    for index in range(1, len(slots) + 1):
        if index == len(slots) or slots[index] != slots[index - 1] + 1:
            yield start, index, slots[start]
            start = index
